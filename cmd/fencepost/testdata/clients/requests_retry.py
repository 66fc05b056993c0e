"""Makes the calls given on stdin at once with requests or urllib3 and prints how each ended."""
import concurrent.futures
import json
import sys

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry


def policy(retries):
    # docs/clients.md shows this
    retry = Retry(
        total=retries,
        allowed_methods=None,  # POST too
        status_forcelist=[409, 429, 502, 503, 504],
        backoff_factor=0.2,
        raise_on_status=False,  # the last answer is returned: its body says more than an error would
    )
    # up to here
    return retry


def client(url, retry):
    # docs/clients.md shows this
    session = requests.Session()
    session.mount(url, HTTPAdapter(max_retries=retry))
    # up to here
    return session


def keyed(url, timeout, retries, key, order, **_):
    session = client(url, policy(retries))
    # docs/clients.md shows this
    answer = session.post(url + "/v1/charges", json=order, headers={"Idempotency-Key": key}, timeout=timeout)
    answer.raise_for_status()
    # up to here
    return answer.json()["id"]


def keyless(url, timeout, retries, order, **_):
    answer = client(url, policy(retries)).post(url + "/v1/charges", json=order, timeout=timeout)
    answer.raise_for_status()
    return answer.json()["id"]


class Refused(Exception):
    def __init__(self, response):
        super().__init__(response.status)
        self.response = response


def pooled(url, timeout, retries, key, order, **_):
    retry = policy(retries)
    # docs/clients.md shows this
    http = urllib3.PoolManager(retries=retry)
    answer = http.request("POST", url + "/v1/charges", body=json.dumps(order), timeout=timeout, headers={"Content-Type": "application/json", "Idempotency-Key": key})
    # up to here
    if answer.status >= 300:
        raise Refused(answer)
    return json.loads(answer.data)["id"]



def problem(e):
    r = getattr(e, "response", None)
    if r is None:
        return {}
    status, body = (r.status_code, r.content) if isinstance(r, requests.Response) else (r.status, r.data)
    return {"status": status, "code": json.loads(body).get("code", "")}


def end(call):
    call["timeout"] /= 1000
    try:
        return {"id": ways[call.pop("way")](**call)}
    except Exception as e:  # whatever the client raises is what a caller has to deal with
        return {"error": {"class": type(e).__name__, "message": str(e), **problem(e)}}


ways = {"keyed": keyed, "keyless": keyless, "pooled": pooled}
calls = json.load(sys.stdin)["calls"]
with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
    json.dump(list(pool.map(end, calls)), sys.stdout)

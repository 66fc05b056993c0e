"""The requests of the arguments, with urllib or requests. See run_clients_test.go."""

import sys
import urllib.error
import urllib.request


def by_urllib(method, url, headers, data):
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as e:
        answer = e
    with answer:
        return answer.status, answer.headers, answer.read().decode()


def by_requests(method, url, headers, data):
    import requests

    answer = requests.request(method, url, headers=headers, data=data, timeout=60)
    return answer.status_code, answer.headers, answer.text


send = {"urllib": by_urllib, "requests": by_requests}[sys.argv[1]]
for method, url, key in zip(*[iter(sys.argv[2:])] * 3):
    keyed = method == "POST"
    status, headers, body = send(method, url, {"Idempotency-Key": key} if keyed else {}, b"amount=1" if keyed else None)
    print(status, "-", headers.get("Idempotent-Replayed", "-"), " ".join(body.split()), sep="\t", flush=True)

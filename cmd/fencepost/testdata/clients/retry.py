"""The loop that callers write round a client without retries of its own."""
import base64
import json
import sys
import time


def attempt(one, call):
    for n in range(call["retries"] + 1):
        try:
            status, headers, body = one(call)
            got = {"status": status, "headers": {k.lower(): v for k, v in headers}, "body": base64.b64encode(body).decode()}
        except Exception as e:  # whatever the client raises is what a caller has to deal with
            got = {"status": 0, "headers": {}, "body": "", "error": repr(e)}
        passing = "error" in got or got["status"] in (409, 429) or got["status"] >= 500
        if n == call["retries"] or not passing:
            return got
        time.sleep(float(got["headers"].get("retry-after", 0.3)))


def main(one):
    """Makes the calls given on stdin, one after the other, and prints their ends."""
    ends = []
    for call in json.load(sys.stdin):
        call["body"] = base64.b64decode(call.get("body") or "")
        ends.append(attempt(one, call))
    json.dump(ends, sys.stdout)

import http.client
import urllib.parse

import retry

kept = None


def one(call):
    """Keeps one connection, and opens another after an error."""
    global kept
    u = urllib.parse.urlsplit(call["url"])
    if kept is None:
        kept = http.client.HTTPConnection(u.netloc)
    kept.timeout = call["timeout"] or 60
    if kept.sock:
        kept.sock.settimeout(kept.timeout)
    try:
        body = None if call["method"] == "GET" else call["body"]
        kept.request(call["method"], u.path + ("?" + u.query if u.query else ""), body, call["headers"])
        res = kept.getresponse()
        return res.status, res.getheaders(), res.read()
    except Exception:
        kept.close()
        kept = None
        raise


retry.main(one)

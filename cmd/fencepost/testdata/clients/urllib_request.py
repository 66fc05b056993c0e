import urllib.error
import urllib.request

import retry


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


opener = urllib.request.build_opener(Stay, urllib.request.ProxyHandler({}))


def one(call):
    data = None if call["method"] == "GET" else call["body"]
    req = urllib.request.Request(call["url"], data, call["headers"], method=call["method"])
    try:
        res = opener.open(req, timeout=call["timeout"] or 60)
    except urllib.error.HTTPError as e:
        res = e
    with res:
        return res.status, res.headers.items(), res.read()


retry.main(one)

package policy

import (
	"strings"
	"testing"
)

// TestTheOtherSchemesNeverChange is TestSchemesNeverChange for what came after raw1.
// The values were computed by a second implementation, from the descriptions.
func TestTheOtherSchemesNeverChange(t *testing.T) {
	const doc = "{\"b\":[null,true,false,\"\\u00e9\",-12.50,{},1e99999999999999999999,[]], \"a\":{\"x\":-0.0,\"ts\":5}}"
	const form = "b=x+y&a%5B%5D=1&m[k]=3&a[]=2&M[j]&ts=9"
	multi := strings.ReplaceAll(parts(`name="b"|1`, `name="a"|2`, "name=\"f\"; filename=\"x\"|Content-Type: text/plain|content\n", "name=ts|9", "name=c|"), "\n", "\r\n")
	for _, c := range []struct {
		posted
		plain, keyed string
	}{
		{posted{body: `{"amount":100}`, encoding: "x-gzip, BR"},
			"raw2:1aa43f22f8af9d8b520a3b817e19ffeb748f4367a7c7321325cd143eb1885ba3", "raw2-hmac:c9fa9f3631b786047897deed01b61917de0707561220ad77b43f4566e2c6257c"},
		{posted{form: BodyJSON, body: doc, ignore: []string{"/a/ts", "/b/7"}},
			"json1:651eae43b41fb24db6da1b3562ab2f571939bdd57b232cfbc9cb60073b0172b9", "json1-hmac:146aefcb2f646e6e0f56fd053ed756a9ebb16a76fcc94fbf259d80c43c700ab0"},
		{posted{form: BodyForm, body: form, ignore: []string{"/ts"}},
			"form1:c9d5668acd186c78fd15dc270a35b4c88bf45b1b3246d216c8ba2ba6f8b4afdc", "form1-hmac:2ad712f6921d828210228f5c7fa59b9625a7ae3c43a2a598c5ef98164beb0ddf"},
		{posted{form: BodyMultipart, ctype: typeMultipart + "; boundary=B", body: multi, ignore: []string{"/ts"}},
			"multipart1:e38206aced399e3700fe29c59cb931c2f5ad25794c19a6c373acfc62d813302a", "multipart1-hmac:b8b77b3341b65361a46b26d41b34a4713aea25603cd9d191aeda209a9048e080"},
	} {
		c.headers = charge().fields
		if c.ctype == "" {
			c.ctype = "-"
		}
		if got := c.sum(t); got != c.plain {
			t.Errorf("got %s, want %s", got, c.plain)
		}
		route, req := c.parts(t)
		req.Trailer = map[string][]string{"X-B": {"2"}, "X-A": {"1", ""}, "X-Announced": nil}
		if got, err := NewFingerprinter([]byte("0123456789abcdef0123456789abcdef")).Sum(route, req, bodyOf(c.body)); got != c.keyed || err != nil {
			t.Errorf("got %s %v, want %s", got, err, c.keyed)
		}
	}
}

package policy

import (
	"net/url"
	"strings"
	"testing"
)

func TestCheckTargetAccepts(t *testing.T) {
	for name, tc := range map[string]struct{ path, query string }{
		"root":                            {"/", ""},
		"empty path is the root":          {"", ""},
		"ordinary":                        {"/v1/charges", "expand[]=customer&x=1"},
		"every character a path may have": {"/azAZ09-._~!$&'()*+,;=:@[]", ""},
		"encoded slash is data":           {"/projects/a%2Fb/merge", ""},
		"encoded percent":                 {"/100%25", ""},
		"encoded UTF-8":                   {"/caf%C3%A9", ""},
		"encoded space":                   {"/a%20b", ""},
		"dots in a name":                  {"/a.b/..c/d../.../.well-known", ""},
		"three encoded dots":              {"/%2e%2e%2e", ""},
		"dots as a parameter":             {"/a;..;.", ""},
		"double slash":                    {"//a//b", ""},
		"double encoding is data":         {"/%252e%252e/", ""},
		"query is opaque":                 {"/", `a=%zz;b&&="<>\^{|}` + "`%2e%2e/../?"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := CheckTarget(tc.path, tc.query); err != nil {
				t.Errorf("CheckTarget(%q, %q): %v", tc.path, tc.query, err)
			}
		})
	}
}

func TestCheckTargetRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ path, query, why string }{
		"relative path":                    {"v1", "", "start with a slash"},
		"asterisk form":                    {"*", "", "start with a slash"},
		"absolute form":                    {"http://h/", "", "start with a slash"},
		"dot segment":                      {"/a/./b", "", "segment"},
		"dot-dot segment":                  {"/a/../b", "", "segment"},
		"dot at the end":                   {"/a/.", "", "segment"},
		"dot-dot at the end":               {"/a/..", "", "segment"},
		"dot-dot at the start":             {"/../a", "", "segment"},
		"encoded dot":                      {"/a/%2e/b", "", "segment"},
		"encoded dots":                     {"/a/%2e%2E/b", "", "segment"},
		"half-encoded dots":                {"/a/.%2e/b", "", "segment"},
		"dots before a parameter":          {"/a/..;/b", "", "segment"},
		"dots before a parameter, encoded": {"/a/%2e.;x=1/b", "", "segment"},
		"dots before an encoded parameter": {"/a/..%3bx/b", "", "segment"},
		"dots before an encoded slash":     {"/a/..%2fb", "", "segment"},
		"dots after an encoded slash":      {"/a%2F..", "", "segment"},
		"dots after a parameter's slash":   {"/a;x/../b", "", "segment"},
		"backslash":                        {`/a\b`, "", "backslash"},
		"encoded backslash":                {"/a%5Cb", "", "backslash"},
		"NUL, encoded":                     {"/a%00", "", "control"},
		"line break, encoded":              {"/a%0d%0aX:y", "", "control"},
		"last control character, encoded":  {"/a%1F", "", "control"},
		"DEL, encoded":                     {"/a%7f", "", "control"},
		"control character":                {"/a\x01", "", "percent-encoded"},
		"space":                            {"/a b", "", "percent-encoded"},
		"non-ASCII":                        {"/café", "", "percent-encoded"},
		"quote":                            {`/a"b`, "", "percent-encoded"},
		"fragment":                         {"/a#b", "", "percent-encoded"},
		"question mark in the path":        {"/a?b", "", "percent-encoded"},
		"bad encoding":                     {"/a%zz", "", "%25"},
		"bad second digit":                 {"/a%4g", "", "%25"},
		"bad first digit":                  {"/a%g4", "", "%25"},
		"encoding cut after one digit":     {"/a%2", "", "%25"},
		"encoding cut after the percent":   {"/a%", "", "%25"},
		"space in the query":               {"/", "a b", "query"},
		"control character in the query":   {"/", "a\r\nb", "query"},
		"DEL in the query":                 {"/", "a\x7f", "query"},
		"non-ASCII in the query":           {"/", "é", "query"},
		"fragment in the query":            {"/", "a#b", "query"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckTarget(tc.path, tc.query)
			if err == nil || !strings.Contains(err.Error(), tc.why) {
				t.Errorf("CheckTarget(%q, %q) = %v, want an error with %q", tc.path, tc.query, err, tc.why)
			}
		})
	}
}

// The law that the hash rests on: what CheckTarget accepts, net/http sends
// unchanged, and no reading of it climbs out of its place.
func FuzzCheckTarget(f *testing.F) {
	for _, seed := range []string{"", "/", "/a/%2e%2e;x/b", "//h/x", "/a[b]%5d", "/a%2fb;c", "/%", "/a:b@c", "/.%2F."} {
		f.Add(seed, "a=1&b=%zz")
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		if CheckTarget(path, query) != nil {
			return
		}
		route := &Route{Upstream: &url.URL{Scheme: "http", Host: "h"}}
		target := route.Target(Origin{}, path, query)
		u, err := url.Parse(target.String())
		if err != nil {
			t.Fatalf("accepted %q ? %q, and net/url does not: %v", path, query, err)
		}
		want := target.Path
		if query != "" {
			want += "?" + query
		}
		if got := u.RequestURI(); got != want || u.Host != "h" {
			t.Fatalf("hashed %q, net/http sends %q to %q", want, got, u.Host)
		}
		decoded, err := url.PathUnescape(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, segment := range strings.FieldsFunc(decoded, func(r rune) bool { return r == '/' || r == '\\' }) {
			if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
				t.Fatalf("accepted dot segment in %q", path)
			}
		}
	})
}

func TestTargetJoinsTheUpstream(t *testing.T) {
	for _, tc := range []struct{ upstream, path, query, want string }{
		{"https://api.example.com", "/v1/x", "a=1", "https://api.example.com/v1/x?a=1"},
		{"https://api.example.com/", "/v1/x", "", "https://api.example.com/v1/x"},
		{"https://api.example.com", "", "", "https://api.example.com/"},
		{"https://api.example.com/base", "/v1", "", "https://api.example.com/base/v1"},
		{"https://api.example.com/base/", "/v1/", "", "https://api.example.com/base/v1/"},
		{"https://api.example.com/b%2Fc", "/a%2fb", "", "https://api.example.com/b%2Fc/a%2fb"},
		{"https://api.example.com/base", "", "", "https://api.example.com/base/"},
		{"https://h/base", "//x", "", "https://h/base//x"},
		{"HTTPS://API.Example.com:443", "/", "", "https://api.example.com/"},
		{"http://h:80", "/", "", "http://h/"},
		{"http://h:443", "/", "", "http://h:443/"},
		{"https://h:80", "/", "", "https://h:80/"},
		{"http://h:8080", "/", "", "http://h:8080/"},
		{"http://[2001:DB8::1]:80", "/", "", "http://[2001:db8::1]/"},
		{"http://[::1]:81", "/", "", "http://[::1]:81/"},
		{"http://[::80]", "/", "", "http://[::80]/"}, // not a port
		{"http://h:", "/", "", "http://h/"},
		{"http://h", "/", "a=b&c=%zz;", "http://h/?a=b&c=%zz;"},
	} {
		u, err := url.Parse(tc.upstream)
		if err != nil {
			if tc.want != "" {
				t.Errorf("%s: %v", tc.upstream, err)
			}
			continue
		}
		if got := (&Route{Upstream: u}).Target(Origin{}, tc.path, tc.query).String(); got != tc.want {
			t.Errorf("%s + %s ? %s = %s, want %s", tc.upstream, tc.path, tc.query, got, tc.want)
		}
	}
}

func TestTheWayChangesTheTarget(t *testing.T) {
	for _, tc := range []struct {
		match, strip, host, upstream string
		from, path                   string
		want, dial                   string
	}{
		{"/stripe/", "/stripe", "", "https://api.stripe.com", "", "/stripe/v1/charges", "https://api.stripe.com/v1/charges", "api.stripe.com"},
		{"/stripe", "/stripe/", "", "https://api.stripe.com/base", "", "/stripe", "https://api.stripe.com/base/", "api.stripe.com"},
		{"/a/b/", "/a/b", "", "http://h", "", "/%61/b//c", "http://h//c", "h"},
		{"/a/b/", "/a/b", "", "http://h", "", "/a/b/", "http://h/", "h"},
		{"/a/b", "/a", "", "http://h", "", "/a/b%2Fc", "", ""}, // two readings: no route
		{"/x%2Fy/", "/x%2Fy", "", "http://h", "", "/x%2fy/z", "http://h/z", "h"},
		{"", "", "client", "http://10.0.0.1:8080", "Shop.Example:80", "/", "http://shop.example/", "10.0.0.1:8080"},
		{"", "", "client", "http://h", "", "/", "http://h/", "h"},
		{"", "", "client", "http://h", "h", "/", "http://h/", "h"},
		{"", "", "Virtual.example:444", "https://10.0.0.1", "x", "/", "https://virtual.example:444/", "10.0.0.1"},
	} {
		tab := table(t, Route{Path: tc.match, StripPath: tc.strip, HostField: tc.host, Upstream: upstream(t, tc.upstream)})
		r, ok := tab.Match(tc.from, tc.path)
		if !ok {
			if tc.want != "" {
				t.Errorf("%s matches nothing", tc.path)
			}
			continue
		}
		got := r.Target(Origin{Host: tc.from}, tc.path, "")
		if got.String() != tc.want || got.Addr() != tc.dial {
			t.Errorf("%s from %q: %s by %s, want %s by %s", tc.path, tc.from, got, got.Addr(), tc.want, tc.dial)
		}
	}
}

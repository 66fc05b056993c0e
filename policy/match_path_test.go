package policy

import (
	"net/url"
	"strings"
	"testing"
)

func TestPathPrefixEndsAtASegment(t *testing.T) {
	for _, tc := range []struct {
		prefix, path string
		want         bool
	}{
		{"", "/", true}, {"", "", true}, {"", "*", true}, {"/", "/x", true}, {"/", "", true},
		{"/v1", "/v1", true}, {"/v1", "/v1/", true}, {"/v1", "/v1/x", true},
		{"/v1", "/v10", false}, {"/v1", "/v", false}, {"/v1", "", false},
		{"/v1/", "/v1/", true}, {"/v1/", "/v1/x", true}, {"/v1/", "/v1", false}, {"/v1/", "/v10/", false},
		{"/v1", "/V1", false},
		{"/a:b", "/a:b/c", true},
	} {
		want := ""
		if tc.want {
			want = "r0"
		}
		expect(t, table(t, Route{Path: tc.prefix}), "h", tc.path, want)
		if got := hasPathPrefix(tc.path, tc.prefix, false); got != tc.want {
			t.Errorf("read by characters: %q for %q: %v, want %v", tc.path, tc.prefix, got, tc.want)
		}
	}
}

func TestNoSpellingLeadsRoundARule(t *testing.T) {
	routes := table(t,
		Route{Name: "send", Path: "/v1/users:send"},
		Route{Name: "cafe", Path: "/caf%c3%a9/"},
		Route{Name: "project", Path: "/p/a%2fb/"},
		Route{Name: "v1", Path: "/v1/"},
		Route{Name: "rest"})
	for name, tc := range map[string]struct{ path, want string }{
		"encoded letter":                         {"/%76%31/x", "v1"},
		"encoded letter in a longer rule":        {"/v1/users:s%65nd", "send"},
		"hexadecimal digits in any case":         {"/caf%C3%A9/x", "cafe"},
		"encoded slash of a rule":                {"/p/a%2Fb/x", "project"},
		"encoded slash is no slash":              {"/p/a/b/x", "rest"},
		"encoded slash where no rule depends":    {"/v1/a%2Fb", "v1"},
		"encoded space where no rule depends":    {"/v1/a%20b", "v1"},
		"parameter where no rule depends":        {"/v1/a;x=1/b", "v1"},
		"double slash where no rule depends":     {"/v1//a", "v1"},
		"encoded slash at a border":              {"/v1%2Fx", ""},
		"encoded colon":                          {"/v1/users%3Asend", ""},
		"parameter inside a rule":                {"/v1;x=1/charges", ""},
		"parameter that starts with an encoding": {"/v1;%41%2Fcharges", ""},
		"parameter at the end of a rule":         {"/v1/users:send;x", ""},
		"double slash in front":                  {"//v1/x", ""},
		"slash and encoded slash":                {"/%2Fv1/x", ""},
		"empty segment with a parameter":         {"/;/v1/x", ""},
		"encoded percent is decoded once":        {"/%2576%2531/x", "rest"},
		"broken encoding is only bytes":          {"/%7/v1%", "rest"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, routes, "h", tc.path, tc.want) })
	}
}

// Three laws. Comparing bytes and comparing characters agree where there is no
// encoding. Encoding unreserved characters never changes the route. And whatever is
// done to a path that a lenient server undoes, the route is the same or none.
func FuzzMatch(f *testing.F) {
	routes, err := NewTable([]Route{
		{Name: "send", Path: "/v1/users:send", Upstream: &url.URL{Scheme: "http", Host: "h"}},
		{Name: "v1", Path: "/v1/", Upstream: &url.URL{Scheme: "http", Host: "h"}},
		{Name: "exact", Path: "/a", Upstream: &url.URL{Scheme: "http", Host: "h"}},
		{Name: "rest", Path: "/", Upstream: &url.URL{Scheme: "http", Host: "h"}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("/v1/users:send", uint64(1<<9), uint64(0))
	f.Add("/v1/x", uint64(1<<3), uint64(1<<3))
	f.Add("/a/b", uint64(0), uint64(3))
	f.Add("/%2e;//", uint64(7), uint64(7))
	f.Fuzz(func(t *testing.T, path string, encode, insert uint64) {
		before, _ := routes.Match("h", path) // whatever it is, no panic
		if CheckTarget(path, "") != nil || strings.ContainsAny(path, "%;") || strings.Contains(path, "//") {
			return
		}
		for _, r := range routes.Routes() {
			if hasPlainPrefix(path, r.Path, false) != hasPathPrefix(path, r.Path, false) {
				t.Fatalf("%q and %q: bytes and characters disagree", path, r.Path)
			}
		}
		const digits = "0123456789abcdef"
		var same, other strings.Builder
		for i := range len(path) {
			b, bit := path[i], uint64(1)<<(i%64)
			hex := string([]byte{'%', digits[b>>4], digits[b&15]})
			if encode&bit != 0 && unreserved(b) {
				same.WriteString(hex)
			} else {
				same.WriteByte(b)
			}
			if insert&bit != 0 && b == '/' {
				other.WriteString([]string{"/", ";p=1"}[i%2])
			}
			if encode&bit != 0 {
				other.WriteString(hex)
			} else {
				other.WriteByte(b)
			}
		}
		if after, _ := routes.Match("h", same.String()); after != before {
			t.Fatalf("%q reaches %v, %q reaches %v", path, before, same.String(), after)
		}
		if after, ok := routes.Match("h", other.String()); ok && after != before {
			t.Fatalf("%q reaches %v, %q reaches %v", path, before.Name, other.String(), after.Name)
		}
	})
}

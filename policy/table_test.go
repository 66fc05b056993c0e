package policy

import (
	"strings"
	"testing"
)

// expect checks which of a table's routes, by name, a request reaches; "" is none.
func expect(t *testing.T, table *Table, host, path, want string) {
	t.Helper()
	got := ""
	if r, ok := table.Match(host, path); ok {
		got = r.Name
	} else if r != nil {
		t.Errorf("Match(%q, %q) gave a route with false", host, path)
	}
	if got != want {
		t.Errorf("Match(%q, %q) = %q, want %q", host, path, got, want)
	}
}

func TestFirstMatchWins(t *testing.T) {
	routes := table(t,
		Route{Name: "one", Host: "a.example.com", Path: "/v1/"},
		Route{Name: "two", Host: "*.example.com", Path: "/v1/"},
		Route{Name: "three", Host: "*.example.com"},
		Route{Name: "four", Path: "/v1/"})
	for _, tc := range []struct{ host, path, want string }{
		{"a.example.com", "/v1/x", "one"},
		{"b.example.com", "/v1/x", "two"},
		{"a.example.com", "/v2/x", "three"},
		{"example.com", "/v1/x", "four"},
		{"example.com", "/v2/x", ""},
	} {
		expect(t, routes, tc.host, tc.path, tc.want)
	}
	expect(t, table(t), "h", "/", "")
}

func TestProblemsOfTheTableAsAWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		routes []Route
		want   []string // a part of each problem, in order
	}{
		"one name twice": {
			[]Route{{Name: "a", Path: "/a"}, {Name: "a", Path: "/b"}},
			[]string{`route "a": name: is already taken`},
		},
		"all problems at once, each with its route": {
			[]Route{{Name: "a", Host: "h:1", Timeout: -1}, {Path: "x"}, {Name: "c", Host: "h:1"}},
			[]string{`route "a": match.host: `, `route "a": timeout: `, "route 2: name: ", "route 2: match.path: ", `route "c": match.host: `, `route "c": match: can never be reached, route "a"`},
		},
		"same host and path":           {[]Route{{Name: "a", Host: "h", Path: "/v1/"}, {Name: "b", Host: "H.", Path: "/v1/"}}, []string{`route "b": match: can never be reached, route "a" before it`}},
		"wider path":                   {[]Route{{Name: "a", Path: "/v1"}, {Name: "b", Path: "/v1/charges"}}, []string{"never"}},
		"path that only ends wider":    {[]Route{{Name: "a", Path: "/v1"}, {Name: "b", Path: "/v1/"}}, []string{"never"}},
		"path in another spelling":     {[]Route{{Name: "a", Path: "/v1/"}, {Name: "b", Path: "/%76%31/"}}, []string{"never"}},
		"path a lenient server equals": {[]Route{{Name: "a", Path: "/a/b/"}, {Name: "b", Path: "/a%2Fb/"}}, []string{"never"}},
		"everything":                   {[]Route{{Name: "a"}, {Name: "b", Host: "h", Path: "/x"}}, []string{"never"}},
		"wider host":                   {[]Route{{Name: "a", Host: "*.b.c"}, {Name: "b", Host: "a.b.c"}}, []string{"never"}},
		"wider suffix":                 {[]Route{{Name: "a", Host: "*.c"}, {Name: "b", Host: "*.b.c"}}, []string{"never"}},
		"address in another spelling":  {[]Route{{Name: "a", Host: "::1"}, {Name: "b", Host: "[0::1]"}}, []string{"never"}},
		"two before it, told once":     {[]Route{{Name: "a", Path: "/x"}, {Name: "b"}, {Name: "c", Path: "/x/y"}}, []string{`route "c": match: can never be reached, route "a"`}},

		"other path":                  {[]Route{{Name: "a", Path: "/v1/"}, {Name: "b", Path: "/v2/"}}, nil},
		"narrower first":              {[]Route{{Name: "a", Path: "/v1/x"}, {Name: "b", Path: "/v1/"}}, nil},
		"slash leaves the bare path":  {[]Route{{Name: "a", Path: "/v1/"}, {Name: "b", Path: "/v1"}}, nil},
		"encoded slash first":         {[]Route{{Name: "a", Path: "/a%2Fb/"}, {Name: "b", Path: "/a/b/"}}, nil},
		"other host":                  {[]Route{{Name: "a", Host: "h"}, {Name: "b", Host: "i"}, {Name: "c"}}, nil},
		"suffix does not cover apex":  {[]Route{{Name: "a", Host: "*.b.c"}, {Name: "b", Host: "b.c"}}, nil},
		"suffix does not cover wider": {[]Route{{Name: "a", Host: "*.b.c"}, {Name: "b", Host: "*.c"}}, nil},
		"host does not cover any":     {[]Route{{Name: "a", Host: "h"}, {Name: "b"}}, nil},
		"name and address":            {[]Route{{Name: "a", Host: "localhost"}, {Name: "b", Host: "127.0.0.1"}}, nil},
		"wider path, other host":      {[]Route{{Name: "a", Host: "h"}, {Name: "b", Host: "i", Path: "/v1/"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tc.routes {
				tc.routes[i].Upstream = upstream(t, "http://up")
			}
			_, err := NewTable(tc.routes)
			var problems []error
			if err != nil {
				problems = err.(interface{ Unwrap() []error }).Unwrap()
			}
			if len(problems) != len(tc.want) {
				t.Fatalf("%d problems, want %d: %v", len(problems), len(tc.want), err)
			}
			for i, want := range tc.want {
				if !strings.Contains(problems[i].Error(), want) {
					t.Errorf("problem %d is %q, want %q in it", i, problems[i], want)
				}
			}
		})
	}
}

func TestRoutesAreInOrder(t *testing.T) {
	built := table(t, Route{Name: "b", Path: "/b"}, Route{Name: "a", Path: "/a"})
	if got := built.Routes(); len(got) != 2 || got[0].Name != "b" || got[1].Name != "a" {
		t.Errorf("Routes() = %v", got)
	}
	built.Routes()[0] = nil // the list is the caller's, the routes are not
	expect(t, built, "h", "/b", "b")
}

// matchCases are what the hot path meets, and what an attacker sends it.
var matchCases = []struct{ name, host, path string }{
	{"plain", "api.example.com", "/v1/charges/ch_123/refunds"},
	{"address", "127.0.0.1:8080", "/v1/charges/ch_123/refunds"},
	{"IPv6", "[::1]:8080", "/v1/charges"},
	{"port and case", "API.example.com:8443", "/v9/none"},
	{"digits", "host1.2", "/v1/%2F;x//%76"},
}

func matchTable(t testing.TB) *Table {
	var routes []Route
	for _, path := range []string{"/v1/payment_intents", "/v1/refunds", "/v1/customers:merge", "/v2/", "/v1/"} {
		for _, host := range []string{"::1", "api.example.org", "*.example.com", ""} {
			routes = append(routes, Route{Name: "r" + strings.NewReplacer("/", "-", ":", "-", "*", "-").Replace(host+path), Host: host, Path: path})
		}
	}
	return table(t, routes...)
}

func TestMatchDoesNotAllocate(t *testing.T) {
	built := matchTable(t)
	for _, tc := range matchCases {
		if n := testing.AllocsPerRun(100, func() { built.Match(tc.host, tc.path) }); n != 0 {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	built := matchTable(b)
	for _, tc := range matchCases {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				built.Match(tc.host, tc.path)
			}
		})
	}
}

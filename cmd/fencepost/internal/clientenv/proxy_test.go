package clientenv

import (
	"strings"
	"testing"
)

func getter(env ...string) func(string) string {
	return func(name string) string { return value(env, name) }
}

func TestNoProxy(t *testing.T) {
	const local = "localhost,127.0.0.1,::1,[::1]"
	for _, r := range []struct {
		upper, lower, want string
		all                bool
	}{
		{"", "", local, false},
		{"a.test", "", local + ",a.test", false},
		{"a.test, .b.test", "c.test,a.test,10.0.0.0/8", local + ",a.test,.b.test,c.test,10.0.0.0/8", false},
		{" ,, localhost ,x", "", local + ",x", false},
		{"*", "", local, true},
		{"a.test,*", "", local + ",a.test", true},
		{"*.a.test", "", local + ",*.a.test", false},
	} {
		got, all := noProxy(getter("NO_PROXY="+r.upper, "no_proxy="+r.lower))
		if strings.Join(got, ",") != r.want || all != r.all {
			t.Errorf("%q and %q: %q, %v", r.upper, r.lower, got, all)
		}
	}
	e := prepare(t, Settings{Base: append(bare(t, authority(t)), "NO_PROXY=*"), Proxy: "http://127.0.0.1:3128"})
	if len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "nothing would go through") || e.value("NO_PROXY") != local {
		t.Errorf("%v, NO_PROXY=%s", e.Warnings, e.value("NO_PROXY"))
	}
}

func TestNonProxyHosts(t *testing.T) {
	for _, r := range []struct{ hosts, want, left string }{
		{"localhost,127.0.0.1,::1,[::1]", "", ""},
		{"a.test", "|a.test|*.a.test", ""},
		{".a.test", "|*.a.test", ""},
		{"*.a.test", "|*.a.test", ""},
		{"192.0.2.1", "|192.0.2.1", ""},
		{"2001:db8::1", "|[2001:db8::1]", ""},
		{"[2001:db8::1]", "|[2001:db8::1]", ""},
		{"10.0.0.0/8,a.test:8080,a|b,a*b", "", "10.0.0.0/8,a.test:8080,a|b,a*b"},
		{`a"b`, "", `a"b`},
	} {
		got, left := nonProxyHosts(strings.Split(r.hosts, ","))
		if got != "localhost|127.*|[::1]"+r.want || strings.Join(left, ",") != r.left {
			t.Errorf("%q: %q, left %q", r.hosts, got, left)
		}
	}
}

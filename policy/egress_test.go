package policy

import (
	"strings"
	"testing"
)

func TestWhereClientsMayGo(t *testing.T) {
	routes := table(t,
		Route{Name: "api", Host: "api.example.com", Path: "/v1/", Enforce: true, Egress: true},
		Route{Name: "plain", Host: "*.plain.example", Egress: true},
		Route{Name: "rest", Enforce: true, Egress: true, Path: "/everywhere/"},
	)
	named := table(t, Route{Name: "api", Host: "api.example.com", Enforce: true, Egress: true})
	for _, c := range []struct {
		routes   *Table
		rule     EgressRule
		host     string
		want     Passage
		reported bool
	}{
		{named, EgressRule{}, "api.example.com", PassIntercepted, false},
		{named, EgressRule{}, "API.example.com.", PassIntercepted, false},
		{named, EgressRule{}, "x.api.example.com", PassRefused, false},
		{named, EgressRule{}, "other.example", PassRefused, false},
		{named, EgressRule{Allow: []string{"other.example"}}, "other.example", PassTunnelled, false},
		{named, EgressRule{Allow: []string{"*.other.example"}}, "a.b.other.example", PassTunnelled, false},
		{named, EgressRule{Allow: []string{"*.other.example"}}, "other.example", PassRefused, false},
		{named, EgressRule{Allow: []string{"Other.Example."}}, "other.example", PassTunnelled, false},
		{named, EgressRule{Allow: []string{"*"}}, "anything.example", PassTunnelled, false},
		{named, EgressRule{Allow: []string{"*"}}, "192.0.2.1", PassTunnelled, false},
		{named, EgressRule{Allow: []string{"192.0.2.1"}}, "[::ffff:192.0.2.1]", PassTunnelled, false},
		{named, EgressRule{Report: true}, "other.example", PassTunnelled, true},
		{named, EgressRule{Report: true}, "api.example.com", PassIntercepted, false},
		// A route for every host governs what is allowed, and allows nothing itself.
		{routes, EgressRule{}, "other.example", PassRefused, false},
		{routes, EgressRule{Allow: []string{"other.example"}}, "other.example", PassIntercepted, false},
		{routes, EgressRule{Report: true}, "other.example", PassIntercepted, true},
		{routes, EgressRule{}, "a.plain.example", PassIntercepted, false},
		{table(t, Route{Name: "plain", Host: "plain.example", Egress: true}), EgressRule{}, "plain.example", PassTunnelled, false},
	} {
		e, err := NewEgress(c.rule, c.routes)
		if err != nil {
			t.Fatal(err)
		}
		d, err := ParseDestination(c.host, 443)
		if err != nil {
			t.Fatal(c.host, err)
		}
		if p, reported := e.Decide(d); p != c.want || reported != c.reported {
			t.Errorf("%s under %+v: %v %v, want %v %v", c.host, c.rule, p, reported, c.want, c.reported)
		}
	}
	if _, err := NewEgress(EgressRule{Allow: []string{"https://x", "*.1.2.3.4", "a b", "x.*.y"}, Ports: []uint16{0}}, named); err == nil || strings.Count(err.Error(), "allow[") != 4 || !strings.Contains(err.Error(), "ports: 0") {
		t.Errorf("%v", err)
	}
}

func TestADestinationHasOneSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"API.Example.com:443": "api.example.com", "api.example.com.:443": "api.example.com", "api.example.com:8443": "api.example.com:8443",
		"192.0.2.1:443": "192.0.2.1", "[2001:DB8::1]:443": "[2001:db8::1]", "[2001:db8:0::1]:444": "[2001:db8::1]:444", "[::ffff:192.0.2.1]:443": "192.0.2.1",
		"": "", "x": "", "x:": "", "x:0": "", "x:65536": "", "x:+1": "", "x:01": "", "x:http": "", ":443": "", "a b:443": "", "a/b:443": "", "[fe80::1%lo]:443": "",
		"127.1:443": "", "0x7f000001:443": "", "2130706433:443": "", "a..b:443": "", "..:443": "", "x@y:443": "", "[x]:443": "", "*:443": "", "[::1]x:443": "",
	} {
		d, err := ParseDestination(in, 0)
		got := ""
		if err == nil {
			got = d.Host("https")
		}
		if got != want {
			t.Errorf("%q is %q (%v), want %q", in, got, err, want)
		}
	}
	if d, err := ParseDestination("example.com", 80); err != nil || d.Port != 80 || d.Host("http") != "example.com" || d.Host("https") != "example.com:80" {
		t.Errorf("%+v %v", d, err)
	}
}

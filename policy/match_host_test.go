package policy

import (
	"strings"
	"testing"
)

func TestHostMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, host string
		want          bool
	}{
		{"", "anything", true},
		{"", "", true},
		{"api.example.com", "api.example.com", true},
		{"api.example.com", "API.Example.COM", true},
		{"api.example.com", "api.example.com:8443", true},
		{"api.example.com", "api.example.com.", true},
		{"api.example.com", "api.example.com.:443", true},
		{"API.example.com.", "api.example.com", true},
		{"api.example.com", "example.com", false},
		{"api.example.com", "x.api.example.com", false},
		{"api.example.com", "api.example.com.evil.org", false},
		{"api.example.com", "api.example.com@evil.org", false},
		{"api.example.com", "", false},
		{"k.example", "\u212a.example", false}, // the Kelvin sign
		{"*.example.com", "api.example.com", true},
		{"*.example.com", "a.b.EXAMPLE.com.:1", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", ".example.com", false},
		{"*.example.com", "badexample.com", false},
		{"127.0.0.1", "127.0.0.1:8080", true},
		{"127.0.0.1", "[::ffff:127.0.0.1]", true},
		{"127.0.0.1", "127.0.0.2", false},
		{"127.0.0.1", "localhost", false},
		{"::1", "[::1]", true},
		{"[::1]", "[::1]:80", true},
		{"[::1]", "::1", true},
		{"::1", "[0:0:0:0:0:0:0:1]:80", true},
		{"2001:db8::a", "[2001:DB8::A]", true},
		{"fe80::1", "[fe80::1%25eth0]:80", true},
		{"::1", "[::2]", false},
		{"::1", "", false},
		{"::1", "[]", false},
		{"::1", "[", false},
		{"h", "h:80", true},
		{"h", ":80", false},
		{"", ":80", true},
	} {
		want := ""
		if tc.want {
			want = "r0"
		}
		expect(t, table(t, Route{Host: tc.pattern}), tc.host, "/", want)
	}
}

func TestHostsThatARouteMayName(t *testing.T) {
	for _, host := range []string{
		"localhost", "api.example.com", "api.example.com.", "a_b.internal", "xn--caf-dma.fr", "*.example.com", "*.com",
		"127.0.0.1", "[::1]", "2001:db8::1", "4f2a9c1b", "host1", strings.Repeat("a", 63) + ".b", strings.Repeat("a.", 126) + "a",
	} {
		table(t, Route{Host: host})
	}
}

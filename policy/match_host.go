package policy

import (
	"errors"
	"net/netip"
	"strings"
)

// hostPattern is Route.Host, made ready to compare. Its zero value is any host.
type hostPattern struct {
	name  string     // lower case; with its dot in front when below is set; "" for an address
	below bool       // every name that ends in name
	addr  netip.Addr // valid for an address
}

func newHostPattern(host string) hostPattern {
	if addr, ok := parseAddress(unbracket(host)); ok {
		return hostPattern{addr: addr}
	}
	name, below := strings.CutPrefix(host, "*")
	return hostPattern{name: name, below: below}
}

// match compares with a host that bareHost has cut; addr is what it parses to.
func (p hostPattern) match(host string, addr netip.Addr) bool {
	switch {
	case p.addr.IsValid():
		return p.addr == addr
	case p.below:
		n := len(host) - len(p.name)
		return n > 0 && equalFold(host[n:], p.name)
	case p.name != "":
		return equalFold(host, p.name)
	}
	return true
}

// covers reports whether p matches every host that q matches.
func (p hostPattern) covers(q hostPattern) bool {
	switch {
	case p == hostPattern{}:
		return true
	case p.below && q.below:
		return strings.HasSuffix(q.name, p.name)
	case p.below:
		return p.match(q.name, netip.Addr{})
	}
	return p == q
}

// bareHost cuts port, brackets and one trailing dot off a request's host.
func bareHost(host string) string {
	// A colon starts the port, unless it is one of an address's, which has several
	// and stands in brackets where a port follows it.
	if i := strings.LastIndexByte(host, ':'); i > 0 && (host[i-1] == ']' || i == strings.IndexByte(host, ':')) {
		host = host[:i]
	}
	return unbracket(strings.TrimSuffix(host, "."))
}

func unbracket(host string) string {
	if len(host) >= 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// parseAddress reads an IP address in any spelling, so that [0:0:0:0:0:0:0:1] does
// not slip past a rule for ::1, nor ::ffff:192.0.2.1 past one for 192.0.2.1. A zone
// says which interface leads there, not who is there.
func parseAddress(host string) (netip.Addr, bool) {
	// Names are told apart before they are parsed: a failed parse allocates.
	if !strings.Contains(host, ":") && strings.Trim(host, "0123456789.") != "" {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	return addr.Unmap().WithZone(""), err == nil
}

// checkHost accepts an IP address, with or without brackets, or a host name.
func checkHost(host string) error {
	if isAddress(host) {
		return nil
	}
	if len(host) > 253 {
		return errors.New("is longer than 253 characters")
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !isName(label) || len(label) > 63 || strings.Contains(label, ".") {
			return errors.New("is not a host name; leave the port out, write non-ASCII names in their xn-- form, and * only as the whole first label")
		}
	}
	// 127.1 and 127.0.0.0x1 are addresses to some resolvers and names to others.
	if last := strings.ToLower(labels[len(labels)-1]); strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return errors.New("ends in a number, and is no IP address")
	}
	return nil
}

func isAddress(host string) bool {
	addr, err := netip.ParseAddr(unbracket(host))
	return err == nil && addr.Zone() == ""
}

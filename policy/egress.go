package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// EgressRule says where clients of the egress proxy may go.
type EgressRule struct {
	// Allow are hosts that may be reached, beside those that a route names: exact,
	// "*.suffix", or "*" for every host. An address is only reached if it is not
	// special as well, which is for the dialler to say.
	Allow []string
	// Ports that may be asked for. Default: 443 and 80.
	Ports []uint16
	// AnyPort lets every port be asked for.
	AnyPort bool
	// Report lets through what is not allowed, and only reports it: for a roll-out.
	Report bool
}

// Egress decides where clients of the egress proxy may go. It is immutable.
type Egress struct {
	allow  []hostPattern
	all    bool
	ports  []uint16
	any    bool // every port
	report bool
	routes *Table
}

// NewEgress checks a rule. routes are those of the egress proxy: each host that one
// of them names is allowed too.
func NewEgress(rule EgressRule, routes *Table) (*Egress, error) {
	e := &Egress{ports: slices.Clone(rule.Ports), any: rule.AnyPort, report: rule.Report, routes: routes}
	if len(e.ports) == 0 {
		e.ports = []uint16{443, 80}
	}
	var problems []error
	for i, host := range rule.Allow {
		if host == "*" {
			e.all = true
			continue
		}
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		name, below := strings.CutPrefix(host, "*.")
		if err := checkHost(name); err != nil {
			problems = append(problems, fmt.Errorf("allow[%d]: %q %w", i, host, err))
		} else if below && isAddress(name) {
			problems = append(problems, fmt.Errorf("allow[%d]: an address has no names below it", i))
		}
		e.allow = append(e.allow, newHostPattern(host))
	}
	if slices.Contains(e.ports, 0) {
		problems = append(problems, errors.New("ports: 0 is not a port"))
	}
	return e, errors.Join(problems...)
}

// Passage is what becomes of a wish to reach a host.
type Passage uint8

const (
	// PassRefused: it is not allowed. The zero value.
	PassRefused Passage = iota
	// PassTunnelled: bytes go through untouched.
	PassTunnelled
	// PassIntercepted: a route governs the host, so its requests are looked at.
	PassIntercepted
)

// String names the passage, for logs and metrics.
func (p Passage) String() string {
	return [...]string{"refused", "tunnelled", "intercepted"}[p]
}

// Destination is a host that a client wants to reach, in the one spelling that is
// compared, connected to and asked for.
type Destination struct {
	// Name is the host in lower case without a trailing dot; an IPv6 address stands
	// without brackets.
	Name string
	Port uint16
}

// ParseDestination reads the "host:port" of CONNECT or of a URL. Without a port it
// is standard; 0 requires one.
func ParseDestination(authority string, standard uint16) (Destination, error) {
	host, port := authority, ""
	if h, p, err := net.SplitHostPort(authority); err == nil {
		host, port = h, p
	} else if standard == 0 {
		return Destination{}, errors.New("write it as host:port")
	} else {
		host = unbracket(host)
	}
	if port == "" && standard == 0 {
		return Destination{}, errors.New("write it as host:port")
	}
	d := Destination{Name: strings.ToLower(strings.TrimSuffix(host, ".")), Port: standard}
	if addr, err := netip.ParseAddr(d.Name); err == nil {
		if addr.Zone() != "" {
			return Destination{}, errors.New("an address with a zone is only good on one machine")
		}
		d.Name = addr.Unmap().String()
	} else if err := checkHost(d.Name); err != nil || authority[0] == '[' {
		return Destination{}, cmp.Or(err, errors.New("only an IPv6 address stands in brackets"))
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return Destination{}, errors.New("the port must be 1 to 65535")
		}
		d.Port = uint16(n)
	}
	return d, nil
}

// Host is the destination as a URL of the scheme has it: the scheme's own port is
// left out, and an IPv6 address stands in brackets.
func (d Destination) Host(scheme string) string {
	name := d.Name
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if scheme == "https" && d.Port == 443 || scheme == "http" && d.Port == 80 {
		return name
	}
	return name + ":" + strconv.Itoa(int(d.Port))
}

// PortAllowed reports whether a port may be asked for.
func (e *Egress) PortAllowed(port uint16) bool { return e.any || slices.Contains(e.ports, port) }

// Decide says what becomes of a wish to reach d. reported is true where it is let
// through only because what is not allowed is reported, not refused.
func (e *Egress) Decide(d Destination) (p Passage, reported bool) {
	named, governed := e.routes.hosts(d.Name)
	allowed := named || e.all || e.allows(d.Name)
	if !allowed && !e.report {
		return PassRefused, false
	}
	if governed {
		return PassIntercepted, !allowed
	}
	return PassTunnelled, !allowed
}

func (e *Egress) allows(name string) bool {
	addr, _ := parseAddress(name)
	return slices.ContainsFunc(e.allow, func(p hostPattern) bool { return p.match(name, addr) })
}

// hosts reports whether a route names a host, itself or by a suffix, and whether
// one governs it.
func (t *Table) hosts(name string) (named, governed bool) {
	addr, _ := parseAddress(name)
	for i := range t.rules {
		if r := &t.rules[i]; r.host.match(name, addr) {
			named = named || r.Host != ""
			governed = governed || r.Enforce
		}
	}
	return named, governed
}

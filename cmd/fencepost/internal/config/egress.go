package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"fencepost/policy"
)

// On reports whether there is an egress proxy.
func (e *Egress) On() bool { return e.Listen != "" }

// Policy turns the section into the policy package's. routes are those of the
// egress proxy.
func (e *Egress) Policy(routes *policy.Table) (*policy.Egress, error) {
	rule := policy.EgressRule{Allow: e.Allow, AnyPort: e.AnyPort, Report: e.Mode == "report"}
	var problems []error
	for i, p := range e.Ports {
		if p < 1 || p > 65535 {
			problems = append(problems, fmt.Errorf("ports[%d]: %d is not a port", i, p))
			continue
		}
		rule.Ports = append(rule.Ports, uint16(p))
	}
	out, err := policy.NewEgress(rule, routes)
	return out, errors.Join(append(problems, err)...)
}

// CIDRs are the special-purpose addresses that may be reached.
func (e *Egress) CIDRs() ([]netip.Prefix, error) {
	var out []netip.Prefix
	var errs []error
	for i, s := range e.AllowCIDRs {
		p, err := netip.ParsePrefix(s)
		if addr, aerr := netip.ParseAddr(s); err != nil && aerr == nil && addr.Zone() == "" {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("allow_cidrs[%d]: %s is not a range of addresses; write it like 10.0.0.0/8", i, shown(s)))
			continue
		case p.Addr().Is4In6():
			errs = append(errs, fmt.Errorf("allow_cidrs[%d]: write the IPv4 range itself", i))
			continue
		case p.Masked() != p:
			errs = append(errs, fmt.Errorf("allow_cidrs[%d]: %s has bits beyond its length; did you mean %s?", i, p, p.Masked()))
			continue
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

// ParentURL is the parent proxy, nil for none. No error repeats it: it may hold a
// password.
func (e *Egress) ParentURL() (*url.URL, error) {
	if e.Parent == "" {
		return nil, nil
	}
	u, err := url.Parse(string(e.Parent))
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("is not a proxy's URL; write it like http://proxy.internal:3128, with a password as ${NAME}")
	}
	return u, nil
}

func (c *Config) validateEgress(k *checker) {
	e := &c.Egress
	k.choice("egress.mode", e.Mode, "enforce", "report")
	if e.MaxTunnels <= 0 {
		k.fail("egress.max_tunnels", "must be more than zero")
	}
	if e.TunnelIdle <= 0 {
		k.fail("egress.tunnel_idle", "must be more than zero")
	}
	if len(e.Ports) == 0 && !e.AnyPort {
		k.fail("egress.ports", "names none, so nothing could be reached")
	}
	none, _ := policy.NewTable(nil)
	_, err := e.Policy(none)
	_, cidrErr := e.CIDRs()
	for _, err := range append(flatten(err), flatten(cidrErr)...) {
		if err != nil {
			key, what, _ := strings.Cut(err.Error(), ": ")
			k.fail("egress."+key, "%s", what)
		}
	}
	if _, err := e.ParentURL(); err != nil {
		k.fail("egress.parent", "%v", err)
	}
	if !e.On() {
		return
	}
	port, ok := checkAddress("egress.listen", e.Listen, k)
	for path, other := range map[string]string{"listen": c.Listen, "admin.listen": c.Admin.Listen} {
		if ok && port != 0 && e.Listen == other {
			k.fail("egress.listen", "is the same address as %s", path)
		}
	}
	if ok && len(c.Callers) == 0 && !c.AllowAnonymous && !Loopback(e.Listen) && k.ok("callers", "allow_anonymous") {
		k.fail("egress.listen", "%s can be reached from other machines, and no callers are configured. Configure callers, listen on a loopback address, or set allow_anonymous: true if something else keeps strangers out", shown(e.Listen))
	}
	if _, err := os.Stat(e.CA.Dir); err != nil {
		k.fail("egress.ca.dir", "%s is not there; make an authority with `fencepost ca init --dir %s`", shown(e.CA.Dir), shown(e.CA.Dir))
	}
}

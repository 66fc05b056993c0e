package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// guard decides which addresses the egress proxy connects to. It is asked after
// the name was resolved, about the very address that is dialled: a name that
// changes its mind in between gains nothing.
type guard struct {
	safe *ssrf.Guardian
	own  func() []netip.AddrPort

	mu     sync.Mutex
	local  map[netip.Addr]bool
	looked time.Time
}

// azureWire answers for the host below a virtual machine at Azure. No registry
// lists it as special.
var azureWire = netip.MustParsePrefix("168.63.129.16/32")

// newGuard returns a guard that refuses special-purpose addresses (private,
// loopback, link-local, shared, translation, metadata, multicast and reserved
// ones, by IANA's registries) but for those in allow, and always this process's
// own listeners.
func newGuard(allow []netip.Prefix, own func() []netip.AddrPort) *guard {
	var v4, v6 []netip.Prefix
	for _, p := range allow {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	return &guard{own: own, safe: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...), ssrf.WithDeniedV4Prefixes(azureWire))}
}

// forbiddenError says that an address is not one to connect to.
// short is why in a few words, for a list.
type forbiddenError struct{ why, short string }

func (e *forbiddenError) Error() string { return e.why }

// problem is the answer to whoever wanted to reach host.
func (e *forbiddenError) problem(host string) *problem {
	return &problem{code: codeForbidden, detail: "The host " + strconv.Quote(host) + " may not be reached: " + e.why + ". Nothing was sent.", short: e.short}
}

// control is for net.Dialer.Control.
func (g *guard) control(_, address string, c syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &forbiddenError{"it leads to " + address + ", which is no address", "no address"}
	}
	to = netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port())
	if g.isOwn(to) {
		return &forbiddenError{fmt.Sprintf("it leads to %s, where this proxy itself listens", to), "Fencepost's own listener"}
	}
	// Asked with the plain form: an IPv4 address in IPv6 clothes is that address.
	network := "tcp4"
	if to.Addr().Is6() {
		network = "tcp6"
	}
	if err := g.safe.Safe(network, to.String(), c); err != nil {
		return &forbiddenError{fmt.Sprintf("it leads to %s, a private or special-purpose address; egress.allow_cidrs opens those that are meant to be reached", to.Addr()),
			fmt.Sprintf("leads to %s, a private address: egress.allow_cidrs", to.Addr())}
	}
	return nil
}

// isOwn reports whether a listener of this process is at the address.
func (g *guard) isOwn(to netip.AddrPort) bool {
	own := g.own()
	return slices.ContainsFunc(own, func(l netip.AddrPort) bool { return l.Port() == to.Port() }) && g.isLocal(to.Addr())
}

// isLocal reports whether an address is this machine's. Interfaces come and go, so
// they are looked up again from time to time.
func (g *guard) isLocal(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.looked) > 5*time.Second || g.local == nil {
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			// Unknown is treated as ours: a port of ours is asked for.
			return true
		}
		g.local = make(map[netip.Addr]bool, len(addrs))
		for _, x := range addrs {
			if p, err := netip.ParsePrefix(x.String()); err == nil {
				g.local[p.Addr().Unmap().WithZone("")] = true
			}
		}
		g.looked = time.Now()
	}
	return g.local[a]
}

// dialer returns what opens guarded connections.
func (g *guard) dialer(timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second, Control: g.control}
	return d.DialContext
}

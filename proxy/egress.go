package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"fencepost/proxy/internal/front"
)

// Authority signs certificates for the hosts whose connections are intercepted.
type Authority interface {
	// Leaf returns a certificate for a DNS name or an IP address. It is called for
	// every intercepted connection, at once from many goroutines.
	Leaf(ctx context.Context, name string) (*tls.Certificate, error)
	// NotAfter is when it ends, and with it every certificate that it signed.
	NotAfter() time.Time
}

// EgressOptions are what an Egress needs beside the proxy's rules.
type EgressOptions struct {
	// Server bounds what one client can take up, outside and inside a tunnel.
	Server ServerOptions
	// Authority signs for intercepted hosts. Required.
	Authority Authority
	// Identity tells programs of this machine which egress proxy this is, at
	// /_fencepost/v1/egress, and API where its lookup API is. They are no secrets.
	Identity, API string
	// MaxTunnels bounds the tunnels that are open at once. Default 10 000.
	MaxTunnels int
	// TunnelIdle closes a tunnel through which nothing went for so long. Default
	// 10 min. It does not bound what is intercepted, which is HTTP and has the
	// server's limits.
	TunnelIdle time.Duration
}

// Egress is the egress proxy: a client's HTTP proxy (RFC 9110, section 7.6) that
// lets it reach what is allowed, and looks into the connections to hosts that a
// route governs.
//
//	client ── http://… ───────────────────────────────▶ governed or passed on
//	client ── CONNECT ──┬─ not allowed ───▶ TLS ended here, and every request in it
//	                    │                   answered with the reason
//	                    ├─ a route governs ▶ TLS ended here; requests governed or
//	                    │                   passed on, over a connection of our own
//	                    └─ else allowed ──▶ bytes, untouched
//
// What comes out of tunnels is served by one inner server, so that a stop drains
// it like everything else.
type Egress struct {
	p       *Proxy
	options EgressOptions
	outer   *Server
	inner   *Server
	queue   *front.Queue
	serving sync.WaitGroup

	mu      sync.Mutex
	open    int // tunnels, those that are being opened included
	tunnels map[net.Conn]struct{}
	closed  bool
}

// NewEgress returns the egress proxy of p, whose rules must have an Egress.
func (p *Proxy) NewEgress(o EgressOptions) (*Egress, error) {
	if p.rules.Load().Egress == nil {
		return nil, errors.New("proxy: Rules.Egress is required for an egress proxy")
	}
	if o.Authority == nil {
		return nil, errors.New("proxy: EgressOptions.Authority is required")
	}
	def(&o.MaxTunnels, 10_000)
	if room := tunnelRoom(); o.MaxTunnels > room {
		p.log.Warn("this process may not open enough files for so many tunnels; raise its limit (ulimit -n, LimitNOFILE) or lower egress.max_tunnels", "max_tunnels", o.MaxTunnels, "room", room)
		o.MaxTunnels = room
	}
	def(&o.TunnelIdle, 10*time.Minute)
	e := &Egress{p: p, options: o, tunnels: make(map[net.Conn]struct{})}
	var err error
	if e.outer, err = NewServer(http.HandlerFunc(e.serveOuter), o.Server); err != nil {
		return nil, err
	}
	inner := o.Server
	inner.CertFile, inner.KeyFile = "", ""
	if e.inner, err = NewServer(http.HandlerFunc(e.serveInner), inner); err != nil {
		return nil, err
	}
	p.metrics.authority(o.Authority)
	return e, nil
}

// tunnelRoom is how many tunnels this process can hold and still take connections:
// each takes two files.
func tunnelRoom() int {
	const others = 1000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	if limit.Cur > math.MaxInt32 {
		return math.MaxInt
	}
	return max((int(limit.Cur)-others)/2, 16)
}

// Serve accepts clients on l until Shutdown or Close, and then returns
// http.ErrServerClosed. It closes l.
func (e *Egress) Serve(l net.Listener) error {
	e.p.OwnListener(l.Addr())
	e.queue = front.NewQueue(l.Addr(), e.options.Server.MaxHeaderBytes+headSlop)
	e.serving.Go(func() { _ = e.inner.http.Serve(e.queue) })
	defer e.serving.Wait()
	return e.outer.Serve(l)
}

// Shutdown stops accepting, waits until what goes through tunnels that are looked
// into is idle, and closes the others, whose end nobody can know. It returns ctx's
// error when that ends first.
func (e *Egress) Shutdown(ctx context.Context) error {
	err := e.outer.Shutdown(ctx)
	if ierr := e.inner.Shutdown(ctx); err == nil {
		err = ierr
	}
	e.closeTunnels()
	return err
}

// Close closes every connection.
func (e *Egress) Close() error {
	err := e.outer.Close()
	_ = e.inner.Close()
	e.closeTunnels()
	return err
}

func (e *Egress) closeTunnels() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for c := range e.tunnels {
		c.Close()
	}
}

// reserve takes the place of one more tunnel, if there is room for it.
func (e *Egress) reserve() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open >= e.options.MaxTunnels {
		return false
	}
	e.open++
	return true
}

// hold notes the connection of a tunnel, so that a stop can close it. It reports
// whether there was none yet.
func (e *Egress) hold(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.tunnels[c] = struct{}{}
	}
	return !e.closed
}

// letGo gives the place of a tunnel back.
func (e *Egress) letGo(c net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.tunnels, c)
	e.open--
}

// OwnListener notes a listener of this process, so that nobody reaches it by way of
// the egress proxy. The egress proxy's own is noted by Serve.
func (p *Proxy) OwnListener(a net.Addr) {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return
	}
	p.ownMu.Lock()
	defer p.ownMu.Unlock()
	p.own = append(p.own, t.AddrPort())
}

func (p *Proxy) ownListeners() []netip.AddrPort {
	p.ownMu.Lock()
	defer p.ownMu.Unlock()
	return p.own
}

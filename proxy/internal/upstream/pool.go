package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options configure a Pool. The zero value is a good HTTP/1.1 pool.
type Options struct {
	// MaxIdlePerHost is how many idle HTTP/1.1 connections are kept to one host.
	// 0 means 256. A connection that would be one more is closed.
	MaxIdlePerHost int

	// MaxConnsPerHost bounds all connections to one host, those being dialed
	// included. 0 means no bound. At the bound, Connect waits until a connection is
	// given back or closed, or until its context ends.
	MaxConnsPerHost int

	// IdleTimeout is how long a connection may stay unused. 0 means 30 s. It is
	// short on purpose: a request written into a connection that the peer is just
	// closing ends in doubt. A peer that announces a shorter time ("Keep-Alive:
	// timeout=5") has it honoured, less a margin.
	IdleTimeout time.Duration

	// DialTimeout bounds name resolution and the TCP handshake. 0 means 10 s.
	DialTimeout time.Duration

	// TLSHandshakeTimeout bounds the TLS handshake. 0 means 10 s.
	TLSHandshakeTimeout time.Duration

	// TLS is the client configuration for https. It is cloned. nil means the
	// system's roots and Go's defaults. ServerName, if empty, is the host's name;
	// NextProtos is set by the pool.
	TLS *tls.Config

	// HTTP2 offers HTTP/2 to https hosts by ALPN. It is off by default, because only
	// on HTTP/1.1 does a connection carry one request at a time, and only there can
	// "no byte of it has left" be counted.
	HTTP2 bool

	// H2C speaks HTTP/2 to http hosts, by prior knowledge, without asking.
	H2C bool

	// DoubtRefusals makes an HTTP/2 peer's own word worth nothing: REFUSED_STREAM,
	// and GOAWAY with a last stream below ours, then leave a request in doubt. By
	// default they count as not sent, as RFC 9113 section 8.7 says.
	DoubtRefusals bool

	// MaxHeaderBytes bounds an answer's header. 0 means net/http's default.
	MaxHeaderBytes int64

	// DialContext opens the TCP connection; guards (address rules, a parent proxy)
	// plug in here. nil means a plain net.Dialer. The network is always "tcp", the
	// address always has a port. A *net.DNSError in the error's chain marks a
	// failure of name resolution.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// A Pool hands out connections for exactly one request each. It is safe for
// concurrent use. It reads no proxy variables, follows no redirects, undoes no
// content encoding, and never sends a request again.
type Pool struct {
	opts Options
	tls  *tls.Config
	h1   *http.Transport // adopts connections that speak HTTP/1.1
	h2   *http.Transport // adopts connections that speak HTTP/2

	// mu guards everything below, and every host and link of this pool. No method
	// of net/http is called while it is held: net/http calls back into the pool
	// (link.closed, link.stateChanged and others) while it holds locks of its own.
	mu     sync.Mutex
	hosts  map[hostKey]*host
	closed bool
}

// New returns an empty pool. It opens no connection.
func New(o Options) *Pool {
	if o.MaxIdlePerHost <= 0 {
		o.MaxIdlePerHost = 256
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 30 * time.Second
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.TLSHandshakeTimeout <= 0 {
		o.TLSHandshakeTimeout = 10 * time.Second
	}
	if o.DialContext == nil {
		o.DialContext = new(net.Dialer).DialContext
	}
	config := &tls.Config{}
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	if o.HTTP2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return &Pool{
		opts:  o,
		tls:   config,
		h1:    adopter(false, o.MaxHeaderBytes),
		h2:    adopter(true, o.MaxHeaderBytes),
		hosts: make(map[hostKey]*host),
	}
}

// Close closes the idle connections and refuses new calls of Connect. Requests in
// flight finish; their connections are closed when they do.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var unused []*link
	for _, h := range p.hosts {
		unused = append(unused, h.idle...)
		h.idle = nil
		for _, l := range h.shared {
			if l.retired = true; l.users == 0 {
				unused = append(unused, l)
			}
		}
		h.shared = nil
		h.wakeAll()
	}
	p.mu.Unlock()
	for _, l := range unused {
		l.shut()
	}
}

// Stats is a snapshot of a pool, for metrics.
type Stats struct {
	Idle    int // connections that carry no request and are ready for one
	InUse   int // connections handed out, or whose answer is still being read
	Dialing int // connections being opened
	Waiting int // calls of Connect that wait for a connection
}

// Stats returns a snapshot over all hosts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s Stats
	for _, h := range p.hosts {
		idle := len(h.idle)
		for _, l := range h.shared {
			if l.users == 0 {
				idle++
			}
		}
		s.Idle += idle
		s.InUse += h.open - h.dialing - idle
		s.Dialing += h.dialing
		s.Waiting += len(h.waiters)
	}
	return s
}

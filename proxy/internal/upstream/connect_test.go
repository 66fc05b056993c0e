package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestWhyThereIsNoConnection(t *testing.T) {
	// A peer that never gets a request: the handshake fails before.
	secure := newPeer(t, secure1, nil)
	halfway := newPeer(t, secure1, func(p *peer) {
		p.greet = func(c net.Conn) { io.ReadFull(c, make([]byte, 100)); c.Close() }
	})
	atOnce := newPeer(t, secure1, func(p *peer) { p.greet = func(c net.Conn) { c.Close() } })
	notTLS := newPeer(t, plain1, nil)
	silent := newPeer(t, secure1, func(p *peer) { p.greet = func(c net.Conn) { io.Copy(io.Discard, c) } })

	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()

	trusting := &tls.Config{RootCAs: identity().roots}
	dials := func(f func(context.Context) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, _, _ string) (net.Conn, error) { return f(ctx) }
	}
	noDNS := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no name server")
	}}}
	guard := errors.New("address not allowed")
	over := newDeadline()
	over.pass(context.DeadlineExceeded)
	cancelled := newDeadline()
	cancelled.pass(context.Canceled)

	for _, c := range []struct {
		name         string
		options      Options
		ctx          context.Context
		scheme, host string
		phase        Phase
		timeout      bool
		cause        error
	}{
		{name: "connection refused", scheme: "http", host: refused.Addr().String(), phase: PhaseDial},
		{name: "dialing takes too long", scheme: "http", host: "slow.test", phase: PhaseDial, timeout: true,
			options: Options{DialTimeout: time.Millisecond, DialContext: dials(func(ctx context.Context) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})}},
		{name: "a guard says no", scheme: "http", host: "inside.test", phase: PhaseDial, cause: guard,
			options: Options{DialContext: dials(func(context.Context) (net.Conn, error) { return nil, guard })}},
		{name: "the name does not resolve", scheme: "https", host: "fencepost.test", phase: PhaseDNS,
			options: Options{DialContext: noDNS.DialContext}},
		{name: "unknown authority", scheme: "https", host: secure.addr, phase: PhaseTLS, cause: x509.UnknownAuthorityError{},
			options: Options{TLS: &tls.Config{RootCAs: x509.NewCertPool()}}},
		{name: "certificate for another name", scheme: "https", host: secure.addr, phase: PhaseTLS,
			options: Options{TLS: &tls.Config{RootCAs: identity().roots, ServerName: "wrong.test"}}},
		{name: "closed halfway through the handshake", scheme: "https", host: halfway.addr, phase: PhaseTLS, options: Options{TLS: trusting}},
		{name: "closed before the handshake", scheme: "https", host: atOnce.addr, phase: PhaseTLS, options: Options{TLS: trusting}},
		{name: "not TLS", scheme: "https", host: notTLS.addr, phase: PhaseTLS, options: Options{TLS: trusting}},
		{name: "the handshake takes too long", scheme: "https", host: silent.addr, phase: PhaseTLS, timeout: true,
			options: Options{TLS: trusting, TLSHandshakeTimeout: time.Millisecond}},
		{name: "HTTP/2 is offered and the handshake fails", scheme: "https", host: secure.addr, phase: PhaseTLS,
			options: Options{HTTP2: true}},
		{name: "cancelled before", scheme: "http", host: notTLS.addr, ctx: cancelled, phase: PhaseWait, cause: context.Canceled},
		{name: "too late before", scheme: "http", host: notTLS.addr, ctx: over, phase: PhaseWait, timeout: true},
		{name: "no such scheme", scheme: "ftp", host: "a.test", phase: PhaseSetup},
		{name: "no host", scheme: "http", host: "", phase: PhaseSetup},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			pool := New(c.options)
			defer pool.Close()
			conn, err := pool.Connect(c.ctx, c.scheme, c.host)
			e, ok := errors.AsType[*ConnectError](err)
			if !ok || conn != nil {
				t.Fatalf("got %v, %T %v", conn, err, err)
			}
			if e.Phase != c.phase || e.Timeout != c.timeout || e.Host != c.host {
				t.Errorf("phase %s, timeout %v, host %q; want %s, %v: %v", e.Phase, e.Timeout, e.Host, c.phase, c.timeout, e)
			}
			if _, authority := c.cause.(x509.UnknownAuthorityError); authority {
				_, ok = errors.AsType[x509.UnknownAuthorityError](err)
			} else {
				ok = c.cause == nil || errors.Is(err, c.cause)
			}
			if !ok {
				t.Errorf("%v is not %v", err, c.cause)
			}
			if !strings.Contains(e.Error(), string(c.phase)) {
				t.Errorf("the message does not name the phase: %v", e)
			}
			if got := pool.Stats(); got != (Stats{}) {
				t.Errorf("left behind: %+v", got)
			}
			if n := len(pool.hosts); n != 0 {
				t.Errorf("%d hosts are remembered", n)
			}
		})
	}
	for _, p := range []*peer{secure, halfway, atOnce, notTLS} {
		p.stop()
		if len(p.delivered) > 0 {
			t.Errorf("delivered: %v", p.delivered)
		}
	}
}

func TestTheAddressToDial(t *testing.T) {
	for _, c := range []struct{ scheme, host, name, addr string }{
		{"http", "a.test", "a.test", "a.test:80"},
		{"https", "a.test", "a.test", "a.test:443"},
		{"https", "a.test:8443", "a.test", "a.test:8443"},
		{"http", "[::1]", "::1", "[::1]:80"},
		{"http", "[::1]:8080", "::1", "[::1]:8080"},
		{"https", "127.0.0.1", "127.0.0.1", "127.0.0.1:443"},
	} {
		name, addr, err := hostKey{c.scheme, c.host}.address()
		if name != c.name || addr != c.addr || err != nil {
			t.Errorf("%s %s: %q, %q, %v", c.scheme, c.host, name, addr, err)
		}
	}
}

package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// dial opens a connection: TCP, TLS, and net/http's client on top. The pool does
// the first two itself, because it has to stand between net/http and the socket,
// and because only then is it certain which step failed. Errors are *ConnectError.
func (p *Pool) dial(ctx context.Context, h *host) (*link, error) {
	name, addr, err := h.key.address()
	if err != nil {
		return nil, connectError(ctx, h.key, PhaseSetup, err)
	}

	dialCtx, cancel := context.WithTimeout(ctx, p.opts.DialTimeout)
	socket, err := p.opts.DialContext(dialCtx, "tcp", addr)
	cancel()
	if err != nil {
		phase := PhaseDial
		if _, ok := errors.AsType[*net.DNSError](err); ok {
			phase = PhaseDNS
		}
		return nil, connectError(ctx, h.key, phase, err)
	}

	l := &link{pool: p, host: h, idleLimit: p.opts.IdleTimeout}
	raw := &tally{Conn: socket}
	l.wire = newWire(raw, raw, l)
	http2 := h.key.scheme == "http" && p.opts.H2C
	if h.key.scheme == "https" {
		secure, err := p.handshake(ctx, raw, name)
		if err != nil {
			raw.Close()
			return nil, connectError(ctx, h.key, PhaseTLS, err)
		}
		state := secure.ConnectionState()
		l.wire.Conn, l.wire.tls = secure, &state
		http2 = state.NegotiatedProtocol == "h2"
	}

	adopt := p.h1
	if http2 {
		adopt = p.h2
		l.wire.multiplex()
	}
	l.cc, err = adopt.NewClientConn(context.WithValue(context.Background(), adopted{}, l.wire), "http", addr)
	if err != nil {
		l.wire.Close()
		return nil, connectError(ctx, h.key, PhaseSetup, err)
	}
	if http2 {
		l.cc.SetStateHook(l.stateChanged)
	}
	return l, nil
}

// address returns the host's name and the address to dial.
func (k hostKey) address() (name, addr string, err error) {
	port := map[string]string{"http": "80", "https": "443"}[k.scheme]
	if port == "" {
		return "", "", fmt.Errorf("unsupported scheme %q", k.scheme)
	}
	u := url.URL{Host: k.host}
	if name = u.Hostname(); name == "" {
		return "", "", errors.New("no host name")
	}
	if p := u.Port(); p != "" {
		port = p
	}
	return name, net.JoinHostPort(name, port), nil
}

func (p *Pool) handshake(ctx context.Context, raw net.Conn, name string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.TLSHandshakeTimeout)
	defer cancel()
	config := p.tls
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = name
	}
	conn := tls.Client(raw, config)
	return conn, conn.HandshakeContext(ctx)
}

// adopted is the context key under which a finished connection is handed to net/http.
type adopted struct{}

// adopter returns a transport that is only ever asked for NewClientConn, and dials
// nothing: it takes the connection from the context. TLS, if any, is below what it
// sees, so to it every connection is a plain one; HTTP/2 is then "prior knowledge",
// the knowledge being our own ALPN.
func adopter(http2 bool, maxHeader int64) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Transport{
		Protocols:              &protocols,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // the answer is passed on, and recorded, as it came
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return ctx.Value(adopted{}).(*wire), nil
		},
	}
}

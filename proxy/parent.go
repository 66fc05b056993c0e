package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"fencepost/proxy/internal/front"
)

// dialFunc opens a connection.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// egressDial is how the egress proxy reaches a destination: directly, under the
// guard, or by way of the parent proxy that is configured. One that happens to
// stand in the environment is never used.
func (p *Proxy) egressDial(c EgressConfig, timeout time.Duration) dialFunc {
	g := newGuard(c.AllowCIDRs, p.ownListeners)
	if c.Parent == nil {
		return g.dialer(timeout)
	}
	d := &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		// The parent resolves names, so only addresses can be judged here.
		if host, _, err := net.SplitHostPort(addr); err == nil {
			if _, err := netip.ParseAddr(host); err == nil {
				if err := g.control(network, addr, nil); err != nil {
					return nil, err
				}
			}
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := d.DialContext(ctx, "tcp", hostPort(c.Parent))
		if err != nil {
			return nil, fmt.Errorf("the parent proxy: %w", err)
		}
		return throughParent(ctx, conn, c.Parent, addr, p.cfg.Instance)
	}
}

// hostPort is the address of a proxy's URL.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// throughParent asks a parent proxy for a tunnel to addr.
func throughParent(ctx context.Context, conn net.Conn, parent *url.URL, addr, instance string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		conn.Close()
		return nil, fmt.Errorf("the parent proxy %s: %w", parent.Host, err)
	}
	if parent.Scheme == "https" {
		s := tls.Client(conn, &tls.Config{ServerName: parent.Hostname(), MinVersion: tls.VersionTLS12})
		if err := s.HandshakeContext(ctx); err != nil {
			return fail(err)
		}
		conn = s
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	// A request of our own making: its Via lets a proxy that leads back here say so.
	ask := "CONNECT " + addr + " HTTP/1.1\r\nHost: " + addr + "\r\nVia: 1.1 fencepost-" + instance + "\r\n"
	if u := parent.User; u != nil {
		password, _ := u.Password()
		ask += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(conn, ask+"\r\n"); err != nil {
		return fail(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode/100 != 2 {
		return fail(fmt.Errorf("it answered %d to the wish for a tunnel to %s", resp.StatusCode, addr))
	}
	_ = conn.SetDeadline(time.Time{})
	if n := in.Buffered(); n > 0 {
		first, _ := in.Peek(n)
		return &front.Tagged{Conn: conn, First: append([]byte(nil), first...)}, nil
	}
	return conn, nil
}

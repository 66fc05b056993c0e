package front

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// conn is an HTTP/1 connection as net/http's server sees it.
type conn struct {
	net.Conn
	in  *Inspector
	tls *tls.ConnectionState // nil without TLS
}

// Read gives net/http what the client sent, once the inspector has seen it.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		if bad := c.in.saw(b[:n]); bad != nil {
			return 0, bad
		}
	}
	return n, err
}

// CloseWrite lets net/http end its side first, so that a client that is still
// sending can read the answer.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type connKey struct{}

// ConnContext is for http.Server: it lets handlers reach what is known of their
// connection.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if mine, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, mine)
	}
	return ctx
}

func of(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// Doubt returns what is wrong with the framing of a request, or "". Each handler
// asks once, before anything else. A request for which it returns something must
// be refused and its connection closed.
func Doubt(r *http.Request) string {
	if c := of(r); c != nil {
		return c.in.next(r)
	}
	return ""
}

// TLS returns the state of the TLS connection that a request came over, or nil.
func TLS(r *http.Request) *tls.ConnectionState {
	if c := of(r); c != nil && c.tls != nil {
		return c.tls
	}
	return r.TLS
}

// Switching says that a request's connection is about to speak another protocol.
// If it does not come to that, the connection must be closed after the answer.
func Switching(r *http.Request) {
	if c := of(r); c != nil {
		c.in.stop()
	}
}

// Listener wraps the connections of a plain listener. maxLine bounds one line of
// a request's head in bytes; it must not be less than what the server accepts.
func Listener(l net.Listener, maxLine int) net.Listener { return &listener{l, maxLine} }

type listener struct {
	net.Listener
	maxLine int
}

// Accept returns the next connection, inspected.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: newInspector(l.maxLine)}, nil
}

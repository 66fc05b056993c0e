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

// Tagged is a connection that carries what is known about it, through TLS and
// net/http, to the handlers of its requests.
type Tagged struct {
	net.Conn
	// First is read before the connection: what was read from it already.
	First []byte
	Tag   any
}

// Read gives First, and then what comes.
func (t *Tagged) Read(b []byte) (int, error) {
	if len(t.First) > 0 {
		n := copy(b, t.First)
		t.First = t.First[n:]
		return n, nil
	}
	return t.Conn.Read(b)
}

// CloseWrite ends our side of the connection.
func (t *Tagged) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type (
	connKey struct{}
	tagKey  struct{}
)

// ConnContext is for http.Server: it lets handlers reach what is known of their
// connection.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if mine, ok := c.(*conn); ok {
		ctx = context.WithValue(ctx, connKey{}, mine)
		c = mine.Conn
	}
	if s, ok := c.(*tls.Conn); ok {
		c = s.NetConn()
	}
	if t, ok := c.(*Tagged); ok {
		ctx = context.WithValue(ctx, tagKey{}, t.Tag)
	}
	return ctx
}

// Tag returns what a request's connection carries, or nil.
func Tag(r *http.Request) any { return r.Context().Value(tagKey{}) }

// Raw returns the connection that a hijacked one stands on. What was not read
// through the hijacked one is read from it.
func Raw(c net.Conn) net.Conn {
	if mine, ok := c.(*conn); ok {
		return mine.Conn
	}
	return c
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

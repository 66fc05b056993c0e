package front

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// Queue is a listener whose connections are pushed: they come from elsewhere, and
// all are served, and drained, by one server.
type Queue struct {
	addr    net.Addr
	maxLine int
	conns   chan net.Conn
	errs    chan error
	done    chan struct{}
	close   sync.Once
}

// NewQueue returns an empty queue. addr is what Addr gives; maxLine is as in
// [Listener].
func NewQueue(addr net.Addr, maxLine int) *Queue {
	return &Queue{addr: addr, maxLine: maxLine, conns: make(chan net.Conn), errs: make(chan error), done: make(chan struct{})}
}

// Push hands a connection over. After Close it closes the connection instead.
func (q *Queue) Push(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.done:
		c.Close()
	}
}

// PushTLS hands a connection over whose handshake is complete.
func (q *Queue) PushTLS(c *tls.Conn) {
	state := c.ConnectionState()
	if state.NegotiatedProtocol == "h2" {
		q.Push(c) // net/http wants to see the *tls.Conn
		return
	}
	q.Push(&conn{Conn: c, in: newInspector(q.maxLine), tls: &state})
}

// PushPlain hands a connection over that speaks HTTP/1.1 without TLS.
func (q *Queue) PushPlain(c net.Conn) { q.Push(&conn{Conn: c, in: newInspector(q.maxLine)}) }

// Accept waits for the next connection.
func (q *Queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case err := <-q.errs:
		return nil, err
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close makes Accept return net.ErrClosed.
func (q *Queue) Close() error {
	q.close.Do(func() { close(q.done) })
	return nil
}

// Addr returns the address that the queue stands for.
func (q *Queue) Addr() net.Addr { return q.addr }

// TLSListener returns a listener of connections over l whose TLS handshakes are
// complete. A handshake may take timeout; handshakes do not wait for each other.
// config must offer what the server speaks, by NextProtos.
func TLSListener(l net.Listener, config *tls.Config, timeout time.Duration, maxLine int) net.Listener {
	t := &tlsListener{Queue: NewQueue(l.Addr(), maxLine), raw: l, config: config, timeout: timeout}
	go t.accept()
	return t
}

type tlsListener struct {
	*Queue
	raw     net.Listener
	config  *tls.Config
	timeout time.Duration
}

// Close stops accepting. Handshakes under way come to nothing.
func (t *tlsListener) Close() error {
	_ = t.Queue.Close()
	return t.raw.Close()
}

func (t *tlsListener) accept() {
	for {
		c, err := t.raw.Accept()
		if err != nil {
			// The server decides whether to go on, and waits a little before it does.
			select {
			case t.errs <- err:
				continue
			case <-t.done:
				return
			}
		}
		go t.handshake(c)
	}
}

func (t *tlsListener) handshake(c net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), t.timeout)
	defer cancel()
	s := tls.Server(c, t.config)
	if err := s.HandshakeContext(ctx); err != nil {
		c.Close()
		return
	}
	t.PushTLS(s)
}

package upstream

import (
	"context"
	"net"
	"sync"
	"testing"
)

// held is a connection whose writes wait while it is held.
type held struct {
	net.Conn
	hold    sync.Mutex
	waiting chan struct{} // a write came
}

func (h *held) Write(p []byte) (int, error) {
	select {
	case h.waiting <- struct{}{}:
	default:
	}
	h.hold.Lock()
	defer h.hold.Unlock()
	return h.Conn.Write(p)
}

// On HTTP/2 net/http's RoundTrip returns when its context ends, and leaves its
// writer alone: the request may leave afterwards.
func TestAnHTTP2RequestThatLeavesAfterItsContextEndedIsInDoubt(t *testing.T) {
	inBothHTTP2(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		socket := &held{waiting: make(chan struct{}, 1)}
		options := s.options()
		options.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			socket.Conn = c
			return socket, err
		}
		pool := New(options)
		defer pool.Close()
		warm(t, pool, p, 1)
		conn := connect(t, pool, p)

		for len(socket.waiting) > 0 {
			<-socket.waiting
		}
		socket.hold.Lock()
		ctx := newDeadline()
		result := make(chan error, 1)
		go func() {
			_, err := conn.RoundTrip(p.request("k", "").WithContext(ctx))
			result <- err
		}()
		occurs(t, "the write", socket.waiting)
		// A sign of life, or the connection would be closed as a dead one.
		mux := conn.link.wire.mux
		reads := mux.reads.Load()
		p.everyLine(t, 1, func(l *line) { l.muxed.write(8, 0, 0, 1) })
		eventually(t, "it is heard", func() bool { return mux.reads.Load() > reads })
		ctx.pass(context.DeadlineExceeded)
		e := sendError(t, <-result)
		if e.NotSent || !e.Timeout {
			t.Errorf("NotSent %v, Timeout %v: %v", e.NotSent, e.Timeout, e)
		}
		if n := p.deliveries("k"); n != 0 {
			t.Errorf("delivered %d times before it was written", n)
		}
		socket.hold.Unlock()
		eventually(t, "it is delivered", func() bool { return p.deliveries("k") == 1 })

		l := conn.link
		eventually(t, "the books balance", func() bool {
			pool.mu.Lock()
			defer pool.mu.Unlock()
			return l.users == 0 && l.pending == 0
		})
	})
}

package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errEnded       = errors.New("upstream: the connection has ended")
	errUnsolicited = errors.New("upstream: the peer sent data that no request asked for")
)

// wire is the connection as net/http sees it. It stands above TLS and keeps the
// evidence that verdicts rest on, and it enforces two rules of its own:
//
//   - Once the read side has ended, or the wire was sealed or closed, no byte of a
//     request is let through: its answer could not be read.
//   - On HTTP/1.1, bytes that arrive while no request is under way end the
//     connection. They are never taken for the answer to the next request.
type wire struct {
	net.Conn // a *tls.Conn, or raw itself
	raw      *tally
	tls      *tls.ConnectionState // nil without TLS
	link     *link
	mux      *mux // nil on HTTP/1.1

	ended   atomic.Bool  // no byte may be written any more
	writing atomic.Int32 // calls of Write that are under way
	sent    atomic.Int64 // bytes that left the process during calls of Write
	quiet   atomic.Bool  // HTTP/1.1: no request is under way

	// parked is set while somebody waits in Read for the peer. After an answer was
	// read to its end, that is net/http's read loop, and it reads only when its own
	// buffer is empty: so a parked wire has no bytes left over from the answer.
	parked  atomic.Bool
	waiting atomic.Bool   // settled waits for a wake
	wake    chan struct{} // parked or ended was set

	closing sync.Once
}

func newWire(conn net.Conn, raw *tally, l *link) *wire {
	w := &wire{Conn: conn, raw: raw, link: l, wake: make(chan struct{}, 1)}
	w.quiet.Store(true)
	return w
}

// Read is called by net/http only: by its read loop, and for the body of an answer.
func (w *wire) Read(p []byte) (int, error) {
	w.parked.Store(true)
	w.rouse()
	if w.mux != nil && w.mux.settled() {
		w.link.settle()
	}
	n, err := w.Conn.Read(p)
	w.parked.Store(false)
	if n > 0 {
		if w.mux != nil {
			if w.mux.heard(p[:n]) {
				w.link.retire()
			}
		} else if w.quiet.Load() {
			n, err = 0, errUnsolicited
		}
	}
	if err != nil {
		w.end()
	}
	return n, err
}

// Write is called by net/http only, with bytes of requests.
//
// What it adds to sent is what the socket took while it ran. Under TLS that is more
// exact than the socket's count alone, which a closing alert changes too.
func (w *wire) Write(p []byte) (int, error) {
	w.writing.Add(1)
	defer w.writing.Add(-1)
	if w.ended.Load() {
		return 0, errEnded
	}
	if w.mux != nil {
		w.mux.said(p)
	} else {
		if w.quiet.Swap(false) && w.raw.spoilt(w.tls == nil) {
			w.end()
			return 0, errEnded
		}
	}
	before := w.raw.out.Load()
	n, err := w.Conn.Write(p)
	w.sent.Add(max(w.raw.out.Load()-before, int64(n)))
	return n, err
}

// ReadFrom is Write for a body that is larger than net/http's buffer.
func (w *wire) ReadFrom(r io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, r, buf[:])
}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// unsent seals the wire and reports whether it is proved that nothing was written
// since sent was mark. Both orders of a race with Write are covered: either Write
// finds the wire sealed, or it is seen here as under way or as counted.
func (w *wire) unsent(mark int64) bool {
	w.ended.Store(true)
	return w.writing.Load() == 0 && w.sent.Load() == mark
}

// settled waits until an HTTP/1.1 connection, whose last answer was read to its
// end, has come to rest, and reports whether it can be used again. It waits for
// net/http's read loop, which is running, not for the peer.
func (w *wire) settled(ctx context.Context) bool {
	for !w.ended.Load() {
		if w.parked.Load() {
			return true
		}
		w.waiting.Store(true)
		if !w.parked.Load() && !w.ended.Load() {
			select {
			case <-w.wake:
			case <-ctx.Done():
				w.waiting.Store(false)
				return false
			}
		}
		w.waiting.Store(false)
	}
	return false
}

func (w *wire) rouse() {
	if w.waiting.Load() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (w *wire) end() {
	w.ended.Store(true)
	w.rouse()
}

// Close is called by net/http when it is done with the connection, for whatever
// reason, sometimes with its locks held.
func (w *wire) Close() (err error) {
	w.end()
	w.closing.Do(func() {
		if w.tls != nil {
			// The closing alert may wait five seconds for a peer that does not read.
			defer time.AfterFunc(closeGrace, func() { w.raw.Close() }).Stop()
		}
		err = w.Conn.Close()
		w.link.closed()
	})
	return err
}

const closeGrace = 250 * time.Millisecond

package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stuck is a socket whose first Write waits, even for Close, until it is told its
// result. Nothing answers on it.
type stuck struct {
	net.Conn
	entered, closed chan struct{}
	result          chan int
	once            sync.Once
}

func (s *stuck) Write(p []byte) (int, error) {
	close(s.entered)
	if n := <-s.result; n < len(p) {
		return n, errors.New("write failed")
	}
	return len(p), nil
}

func (s *stuck) Read([]byte) (int, error) {
	<-s.closed
	return 0, net.ErrClosed
}

func (s *stuck) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func stuckPool() (*Pool, *stuck) {
	s := &stuck{entered: make(chan struct{}), closed: make(chan struct{}), result: make(chan int, 1)}
	return New(Options{DialContext: func(context.Context, string, string) (net.Conn, error) { return s, nil }}), s
}

// net/http's RoundTrip returns only when its writer is done: so the count is final,
// and a failed write of nothing is known to be one. If a later Go returned earlier,
// the verdict would be doubt, and this test would fail.
func TestTheVerdictComesAfterTheLastWrite(t *testing.T) {
	for name, c := range map[string]struct {
		written int
		notSent bool
	}{
		"nothing was written":    {0, true},
		"one byte was written":   {1, false},
		"everything was written": {1 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			pool, s := stuckPool()
			conn, err := pool.Connect(t.Context(), "http", "upstream.test")
			if err != nil {
				t.Fatal(err)
			}
			ctx := newDeadline()
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://upstream.test/", strings.NewReader("x"))
			result := make(chan error)
			go func() {
				_, err := conn.RoundTrip(req)
				result <- err
			}()
			occurs(t, "the write", s.entered)
			ctx.pass(context.DeadlineExceeded)
			occurs(t, "the close", s.closed)
			select {
			case err := <-result:
				t.Fatalf("returned while a write was under way: %v", err)
			default:
			}
			s.result <- c.written
			if e := sendError(t, <-result); e.NotSent != c.notSent || !e.Timeout {
				t.Errorf("NotSent %v, Timeout %v: %v", e.NotSent, e.Timeout, e)
			}
		})
	}
}

func testWire(conn net.Conn) *wire {
	raw := &tally{Conn: conn}
	l := &link{pool: New(Options{})}
	l.wire = newWire(raw, raw, l)
	return l.wire
}

// The proof does not rest on net/http's good behaviour alone.
func TestAWriteThatIsUnderWayIsNotCalledUnsent(t *testing.T) {
	_, s := stuckPool()
	w := testWire(s)
	done := make(chan struct{})
	go func() { defer close(done); w.Write([]byte("POST")) }()
	occurs(t, "the write", s.entered)
	if w.unsent(0) {
		t.Error("called unsent")
	}
	s.result <- 0
	occurs(t, "the end of the write", done)
}

func TestAfterTheVerdictNothingLeaves(t *testing.T) {
	near, far := net.Pipe()
	w := testWire(near)
	if !w.unsent(0) {
		t.Fatal("not unsent")
	}
	if n, err := w.Write([]byte("late")); n != 0 || err == nil {
		t.Errorf("Write = %d, %v", n, err)
	}
	if n, err := w.ReadFrom(strings.NewReader("late")); n != 0 || err == nil {
		t.Errorf("ReadFrom = %d, %v", n, err)
	}
	near.Close()
	if b, _ := io.ReadAll(far); len(b) > 0 {
		t.Errorf("the peer got %q", b)
	}
}

func TestAfterThePeerHasEndedNothingLeaves(t *testing.T) {
	near, far := net.Pipe()
	w := testWire(near)
	far.Close()
	if _, err := w.Read(make([]byte, 1)); err == nil {
		t.Fatal("no end")
	}
	if n, err := w.Write([]byte("late")); n != 0 || err == nil {
		t.Errorf("Write = %d, %v", n, err)
	}
	if !w.unsent(0) {
		t.Error("not unsent")
	}
}

func TestTheClosingAlertOfTLSIsNotPartOfTheRequest(t *testing.T) {
	p := newPeer(t, secure1, nil)
	pool := New(p.speech.options())
	defer pool.Close()
	warm(t, pool, p, 1)
	conn := connect(t, pool, p)
	w := conn.link.wire
	before := w.raw.out.Load()
	p.everyLine(t, 1, (*line).close)
	eventually(t, "our end is closed", func() bool { return pool.Stats() == Stats{} })
	eventually(t, "our alert was written", func() bool { return w.raw.out.Load() > before })
	_, err := conn.RoundTrip(p.request("k", "x"))
	if e := sendError(t, err); !e.NotSent {
		t.Errorf("in doubt: %v", e)
	}
}

func TestAllBytesOfARequestAreCounted(t *testing.T) {
	for _, s := range []speech{plain1, secure1} {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		for _, size := range []int{0, 10, 5000, 200_000} {
			conn := connect(t, pool, p)
			mark := conn.mark
			exchangeOn(t, conn, p.request("k", strings.Repeat("x", size)))
			if got := conn.link.wire.sent.Load() - mark; got < int64(size)+50 || got > int64(size)*2+1000 {
				t.Errorf("%s: a body of %d counted as %d", s.name, size, got)
			}
		}
	}
}

func TestAConnectionIsReadyOnceItsReaderWaits(t *testing.T) {
	for name, c := range map[string]struct {
		then func(w *wire, cancel context.CancelFunc)
		want bool
	}{
		"the reader waits":   {func(w *wire, _ context.CancelFunc) { go w.Read(make([]byte, 1)) }, true},
		"it is closed":       {func(w *wire, _ context.CancelFunc) { w.Close() }, false},
		"the caller gave up": {func(_ *wire, cancel context.CancelFunc) { cancel() }, false},
	} {
		near, far := net.Pipe()
		defer far.Close()
		w := testWire(near)
		defer w.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		result := make(chan bool)
		go func() { result <- w.settled(ctx) }()
		eventually(t, "it is waited for", w.waiting.Load)
		c.then(w, cancel)
		if got := <-result; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAConnectionHoldsItsPlaceUntilItIsClosed(t *testing.T) {
	closing, goOn := make(chan struct{}), make(chan struct{})
	pool := New(Options{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, _ := net.Pipe()
		return slowCloser{near, closing, goOn}, nil
	}})
	conn, err := pool.Connect(t.Context(), "http", "upstream.test")
	if err != nil {
		t.Fatal(err)
	}
	go conn.link.shut()
	occurs(t, "the close", closing)
	if got := pool.Stats(); got != (Stats{InUse: 1}) {
		t.Errorf("%+v while it is being closed", got)
	}
	close(goOn)
	eventually(t, "the place is free", func() bool { return pool.Stats() == Stats{} })
}

type slowCloser struct {
	net.Conn
	closing chan<- struct{}
	goOn    <-chan struct{}
}

func (s slowCloser) Close() error {
	close(s.closing)
	<-s.goOn
	return s.Conn.Close()
}

// A peer that reads nothing does not hold up the close of its connection for as
// long as TLS would wait to say goodbye.
func TestThePartingAlertIsNotWaitedForLong(t *testing.T) {
	p := newPeer(t, secure1, nil)
	socket := &mute{closed: make(chan struct{})}
	options := p.speech.options()
	options.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		socket.Conn = c
		return socket, err
	}
	pool := New(options)
	conn := connect(t, pool, p)
	socket.muted.Store(true)
	start := time.Now()
	conn.link.shut()
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("took %v", d)
	}
}

// mute is a connection that, once muted, blocks writes until it is closed.
type mute struct {
	net.Conn
	muted  atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (m *mute) Write(p []byte) (int, error) {
	if m.muted.Load() {
		<-m.closed
		return 0, net.ErrClosed
	}
	return m.Conn.Write(p)
}

func (m *mute) SetWriteDeadline(t time.Time) error {
	time.AfterFunc(time.Until(t), func() { m.once.Do(func() { close(m.closed) }) })
	return nil
}

func (m *mute) Close() error {
	m.once.Do(func() { close(m.closed) })
	return m.Conn.Close()
}

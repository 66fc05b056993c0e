package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTheConnectionUsedLastIsUsedNext(t *testing.T) {
	p := newPeer(t, plain1, nil)
	pool := New(p.speech.options())
	defer pool.Close()
	a, b := connect(t, pool, p), connect(t, pool, p)
	exchangeOn(t, b, p.request("k", "x"))
	exchangeOn(t, a, p.request("k", "x"))
	if next := connect(t, pool, p); next.link != a.link {
		t.Error("an older one was taken")
	}
	if next := connect(t, pool, p); next.link != b.link {
		t.Error("the older one was not taken second")
	}
}

func TestHostsDoNotShareConnections(t *testing.T) {
	p, other := newPeer(t, plain1, nil), newPeer(t, plain1, nil)
	pool := New(p.speech.options())
	defer pool.Close()
	warm(t, pool, p, 1)
	if connect(t, pool, other).Reused() {
		t.Error("the connection of another host was given out")
	}
}

func TestAConnectionThatThePeerClosesWhileIdleIsDropped(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		warm(t, pool, p, 1)
		p.everyLine(t, 1, (*line).close)
		eventually(t, "it is dropped", func() bool { return pool.Stats() == Stats{} })
		conn := connect(t, pool, p)
		if conn.Reused() {
			t.Error("a closed connection was given out")
		}
		exchangeOn(t, conn, p.request("k", "x"))
		p.finallyDelivered(t, "k", 1)
	})
}

func TestOfTwoIdleConnectionsOnlyTheClosedOneIsDropped(t *testing.T) {
	for _, s := range []speech{plain1, secure1} {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		warm(t, pool, p, 2)
		var one *line
		p.everyLine(t, 2, func(l *line) { one = l })
		one.close()
		eventually(t, "one is dropped", func() bool { return pool.Stats() == Stats{Idle: 1} })
		if !connect(t, pool, p).Reused() {
			t.Errorf("%s: the other was dropped too", s.name)
		}
	}
}

func TestIdleConnectionsAreClosedInTime(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		options := s.options()
		options.IdleTimeout = 5 * time.Millisecond
		pool := New(options)
		defer pool.Close()
		for range 2 { // the reaper runs more than once
			conn := connect(t, pool, p)
			conn2 := connect(t, pool, p)
			conn.Release()
			conn2.Release()
			eventually(t, "it is closed", func() bool { return pool.Stats() == Stats{} })
		}
	})
}

func TestAConnectionThatIsTooOldIsNotGivenOut(t *testing.T) {
	p := newPeer(t, plain1, nil)
	pool := New(p.speech.options())
	defer pool.Close()
	warm(t, pool, p, 2)
	pool.mu.Lock()
	for _, h := range pool.hosts {
		for _, l := range h.idle {
			l.idleSince = l.idleSince.Add(-time.Hour) // a laptop slept: no timer ran
		}
	}
	pool.mu.Unlock()
	conn := connect(t, pool, p)
	if conn.Reused() {
		t.Error("it was given out")
	}
	conn.Release()
	if got := pool.Stats(); got != (Stats{Idle: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestThePeersKeepAliveTimeIsHonoured(t *testing.T) {
	pool := New(Options{IdleTimeout: 30 * time.Second})
	for field, want := range map[string]time.Duration{
		"":                      30 * time.Second,
		"timeout=5":             4 * time.Second,
		"timeout=5, max=100":    4 * time.Second,
		"max=100, Timeout=5":    4 * time.Second,
		"timeout=1":             500 * time.Millisecond,
		"timeout=0":             0,
		"timeout=600":           30 * time.Second,
		"timeout=x":             30 * time.Second,
		"timeout=-1":            30 * time.Second,
		"timeout=9999999999999": 30 * time.Second,
		"max=3":                 30 * time.Second,
	} {
		l := &link{pool: pool, idleLimit: pool.opts.IdleTimeout}
		l.heed(http.Header{"Keep-Alive": {field}})
		if l.idleLimit != want {
			t.Errorf("%q: %v, want %v", field, l.idleLimit, want)
		}
	}
}

func TestNoMoreThanMaxIdlePerHostAreKept(t *testing.T) {
	p := newPeer(t, plain1, nil)
	options := p.speech.options()
	options.MaxIdlePerHost = 2
	pool := New(options)
	defer pool.Close()
	warm(t, pool, p, 5)
	if got := pool.Stats(); got != (Stats{Idle: 2}) {
		t.Errorf("%+v", got)
	}
}

// bounded is a pool of one connection, which is in use.
func bounded(t *testing.T, s speech) (*Pool, *peer, *Conn) {
	p := newPeer(t, s, func(p *peer) { p.streams = 1 })
	options := s.options()
	options.MaxConnsPerHost = 1
	pool := New(options)
	t.Cleanup(pool.Close)
	warm(t, pool, p, 1)
	conn := connect(t, pool, p)
	if s.mux {
		eventually(t, "the limit is known", func() bool { return conn.link.cc.Available() == 1 })
	}
	return pool, p, conn
}

// waiter calls Connect in the background, and returns once it is in line.
func waiter(t *testing.T, ctx context.Context, pool *Pool, p *peer) <-chan error {
	t.Helper()
	before := pool.Stats().Waiting
	result := make(chan error, 1)
	go func() {
		conn, err := pool.Connect(ctx, p.speech.scheme(), p.addr)
		if err == nil {
			conn.Release()
		}
		result <- err
	}()
	eventually(t, "it waits", func() bool { return pool.Stats().Waiting == before+1 })
	return result
}

func TestAtTheBoundConnectWaitsForAConnection(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		for how, free := range map[string]func(*testing.T, *peer, *Conn){
			"released": func(_ *testing.T, _ *peer, c *Conn) { c.Release() },
			"used":     func(t *testing.T, p *peer, c *Conn) { exchangeOn(t, c, p.request("k", "x")) },
			"closed":   func(t *testing.T, p *peer, _ *Conn) { p.everyLine(t, 1, (*line).close) },
		} {
			t.Run(how, func(t *testing.T) {
				pool, p, conn := bounded(t, s)
				first := waiter(t, t.Context(), pool, p)
				second := waiter(t, t.Context(), pool, p)
				free(t, p, conn)
				for _, result := range []<-chan error{first, second} {
					if err := <-result; err != nil {
						t.Error(err)
					}
				}
			})
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		pool, p, conn := bounded(t, s)
		ctx := newDeadline()
		first := waiter(t, ctx, pool, p)
		second := waiter(t, t.Context(), pool, p)
		ctx.pass(context.DeadlineExceeded)
		e, ok := errors.AsType[*ConnectError](<-first)
		if !ok || e.Phase != PhaseWait || !e.Timeout {
			t.Errorf("got %v", e)
		}
		conn.Release()
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// A waiter that is woken and leaves passes its turn on.
func TestAWokenWaiterThatLeavesWakesTheNext(t *testing.T) {
	h := &host{pool: New(Options{})}
	first, second := h.enqueue(false), h.enqueue(false)
	h.wakeOne()
	h.leave(first)
	select {
	case <-second:
	default:
		t.Error("the turn was lost")
	}
}

func TestTheBoundHoldsAndNobodyStarves(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		const limit = 3
		p := newPeer(t, s, func(p *peer) {
			p.streams = 4
			p.act = func(x *exchange) {
				if len(x.key)%3 == 0 {
					x.respond(200, "", "ok")
					x.close()
				} else {
					x.respond(200, "", "ok")
				}
			}
		})
		var open, most atomic.Int32
		options := s.options()
		options.MaxConnsPerHost = limit
		options.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				if n := open.Add(1); n > limit {
					most.Store(n)
				}
				c = &closeCounter{Conn: c, open: &open}
			}
			return c, err
		}
		pool := New(options)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				for j := range 20 {
					conn, err := pool.Connect(t.Context(), s.scheme(), p.addr)
					if err != nil {
						t.Error(err)
						return
					}
					if j%5 == 4 {
						conn.Release()
						continue
					}
					if resp, err := conn.RoundTrip(p.request(fmt.Sprint(i*j), "x")); err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}
			})
		}
		wg.Wait()
		pool.Close()
		eventually(t, "all is closed", func() bool { return pool.Stats() == Stats{} && open.Load() == 0 })
		if n := most.Load(); n > limit {
			t.Errorf("%d connections at once, limit %d", n, limit)
		}
	})
}

type closeCounter struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (c *closeCounter) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func TestCloseEndsTheIdleAndLetsTheRestFinish(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		received, answer := make(chan struct{}), make(chan struct{})
		p := newPeer(t, s, func(p *peer) {
			p.act = func(x *exchange) {
				close(received)
				<-answer
				x.respond(200, "", "ok")
			}
		})
		pool := New(s.options())
		warm(t, pool, p, 2)
		conn := connect(t, pool, p)
		result := make(chan error)
		go func() {
			resp, err := conn.RoundTrip(p.request("k", "x"))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			result <- err
		}()
		occurs(t, "the request", received)

		pool.Close()
		pool.Close()
		eventually(t, "only the one in flight is left", func() bool { return pool.Stats() == Stats{InUse: 1} })
		_, err := pool.Connect(t.Context(), s.scheme(), p.addr)
		if e, ok := errors.AsType[*ConnectError](err); !ok || !errors.Is(e, ErrClosed) {
			t.Errorf("Connect after Close: %v", err)
		}
		close(answer)
		if err := <-result; err != nil {
			t.Error(err)
		}
		eventually(t, "all is closed", func() bool { return pool.Stats() == Stats{} })
	})
}

func TestCloseEndsWaiting(t *testing.T) {
	pool, p, _ := bounded(t, plain1)
	result := waiter(t, t.Context(), pool, p)
	pool.Close()
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestCloseDuringADialLeavesNothingOpen(t *testing.T) {
	p := newPeer(t, plain1, nil)
	dialing, goOn := make(chan struct{}), make(chan struct{})
	pool := New(Options{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		close(dialing)
		<-goOn
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	result := make(chan error)
	go func() {
		_, err := pool.Connect(t.Context(), "http", p.addr)
		result <- err
	}()
	occurs(t, "the dial", dialing)
	if got := pool.Stats(); got != (Stats{Dialing: 1}) {
		t.Errorf("%+v", got)
	}
	pool.Close()
	close(goOn)
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if got := pool.Stats(); got != (Stats{}) {
		t.Errorf("%+v", got)
	}
}

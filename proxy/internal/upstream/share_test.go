package upstream

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// inBothHTTP2 runs a test over TLS and in clear.
func inBothHTTP2(t *testing.T, f func(*testing.T, speech)) {
	for _, s := range []speech{plain2, secure2} {
		t.Run(s.name, func(t *testing.T) { f(t, s) })
	}
}

func TestManyRequestsShareOneHTTP2Connection(t *testing.T) {
	inBothHTTP2(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		var wg sync.WaitGroup
		for i := range 50 { // all at once, with no connection yet
			wg.Go(func() {
				conn, err := pool.Connect(t.Context(), s.scheme(), p.addr)
				if err != nil {
					t.Error(err)
					return
				}
				if got, _ := exchangeOn(t, conn, p.request(fmt.Sprint("k", i), "x")); got != 200 {
					t.Errorf("status %d", got)
				}
			})
		}
		wg.Wait()
		if n := p.connections(); n != 1 {
			t.Errorf("%d connections, want one", n)
		}
		if got := pool.Stats(); got != (Stats{Idle: 1}) {
			t.Errorf("%+v", got)
		}
		p.stop()
		for i := range 50 {
			if n := p.deliveries(fmt.Sprint("k", i)); n != 1 {
				t.Errorf("k%d was delivered %d times", i, n)
			}
		}
	})
}

func TestAtTheStreamLimitAnotherConnectionIsOpened(t *testing.T) {
	inBothHTTP2(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, func(p *peer) { p.streams = 2 })
		pool := New(s.options())
		defer pool.Close()
		warm(t, pool, p, 1)
		first := connect(t, pool, p)
		eventually(t, "the limit is known", func() bool { return first.link.cc.Available() == 2 })
		second, third := connect(t, pool, p), connect(t, pool, p)
		if second.link != first.link || third.link == first.link || third.Reused() {
			t.Error("want two on the first connection, and the third on a new one")
		}
		for _, c := range []*Conn{first, second, third} {
			exchangeOn(t, c, p.request("k", "x"))
		}
	})
}

// Go 1.26.8 would let a hundred requests onto a connection whose limit is not known.
func TestUntilTheStreamLimitIsKnownAConnectionTakesOneRequest(t *testing.T) {
	inBothHTTP2(t, func(t *testing.T, s speech) {
		known := make(chan struct{})
		p := newPeer(t, s, func(p *peer) {
			p.streams = 1
			p.settings = func() { <-known }
		})
		pool := New(s.options())
		defer pool.Close()
		first := connect(t, pool, p)
		result := waiter(t, t.Context(), pool, p)
		close(known)
		if err := <-result; err != nil {
			t.Error(err)
		}
		// One is the limit, and the first has it.
		eventually(t, "a second connection", func() bool { return p.connections() == 2 })
		if got, _ := exchangeOn(t, first, p.request("k", "x")); got != 200 {
			t.Errorf("status %d", got)
		}
	})
}

func TestAHostThatChoosesHTTP1IsSpokenToInHTTP1(t *testing.T) {
	p := newPeer(t, secure1, nil)
	options := p.speech.options()
	options.HTTP2 = true
	pool := New(options)
	defer pool.Close()
	warm(t, pool, p, 2)
	if got := pool.Stats(); got != (Stats{Idle: 2}) {
		t.Errorf("%+v", got)
	}
}

func TestAHostThatSpeaksHTTP2IsNotOfferedItByDefault(t *testing.T) {
	p := newPeer(t, secure2, nil)
	pool := New(Options{TLS: p.speech.options().TLS})
	defer pool.Close()
	if conn, err := pool.Connect(t.Context(), "https", p.addr); err == nil && conn.link.wire.mux != nil {
		t.Error("it was")
	}
}

func TestAfterGoAwayAConnectionIsNotGivenOut(t *testing.T) {
	inBothHTTP2(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		warm(t, pool, p, 1)
		p.everyLine(t, 1, func(l *line) { l.muxed.goAway(1, codeNo) })
		eventually(t, "it is closed", func() bool { return pool.Stats() == Stats{} })
		conn := connect(t, pool, p)
		if conn.Reused() {
			t.Error("it was given out")
		}
		exchangeOn(t, conn, p.request("k", "x"))
	})
}

func TestGoAwayBetweenTwoStreamsTellsThemApart(t *testing.T) {
	inBothHTTP2(t, func(t *testing.T, s speech) {
		received := make(chan *exchange, 2)
		p := newPeer(t, s, func(p *peer) { p.act = func(x *exchange) { received <- x } })
		pool := New(s.options())
		defer pool.Close()
		results := map[string]chan error{}
		var low *exchange
		for _, key := range []string{"low", "high"} {
			conn, result := connect(t, pool, p), make(chan error, 1)
			results[key] = result
			go func() {
				_, err := conn.RoundTrip(p.request(key, "x"))
				result <- err
			}()
			if x := <-received; low == nil {
				low = x
			}
		}
		low.muxed.goAway(low.stream, codeNo)
		if e := sendError(t, <-results["high"]); !e.NotSent {
			t.Errorf("the higher stream is in doubt: %v", e)
		}
		low.close()
		if e := sendError(t, <-results["low"]); e.NotSent {
			t.Errorf("the lower stream is called not sent: %v", e)
		}
	})
}

func TestAConnectionThatStaysSilentUntilADeadlineIsNotGivenOutAgain(t *testing.T) {
	inBothHTTP2(t, func(t *testing.T, s speech) {
		t.Run("alive", func(t *testing.T) {
			if again, _ := givenOutAgain(t, s, false); !again {
				t.Error("a connection that is alive was given up")
			}
		})
		t.Run("silent", func(t *testing.T) {
			// What the peer had to say about the request before may come late on a busy
			// machine; then it was not silent, and the test says nothing.
			for range 10 {
				again, silent := givenOutAgain(t, s, true)
				if !silent {
					continue
				}
				if again {
					t.Error("a connection that was silent is given out again")
				}
				return
			}
			t.Skip("the peer was never silent")
		})
	})
}

// givenOutAgain lets a request end by its deadline, and reports whether the next
// one gets the same connection, and whether nothing was heard on it meanwhile.
func givenOutAgain(t *testing.T, s speech, silent bool) (again, wasSilent bool) {
	received := make(chan *exchange, 1)
	p := newPeer(t, s, func(p *peer) { p.act = func(x *exchange) { received <- x } })
	pool := New(s.options())
	defer pool.Close()
	warm(t, pool, p, 1)
	conn := connect(t, pool, p)
	heard := conn.link.wire.mux.reads.Load()
	ctx := newDeadline()
	result := make(chan error, 1)
	go func() {
		_, err := conn.RoundTrip(p.request("k", "").WithContext(ctx))
		result <- err
	}()
	x := <-received
	if !silent {
		x.muxed.write(8, 0, 0, 1) // WINDOW_UPDATE
		eventually(t, "it is heard", func() bool { return conn.link.wire.mux.reads.Load() > heard })
	}
	ctx.pass(context.DeadlineExceeded)
	if e := sendError(t, <-result); e.NotSent || !e.Timeout {
		t.Errorf("NotSent %v, Timeout %v: %v", e.NotSent, e.Timeout, e)
	}
	wasSilent = conn.link.wire.mux.reads.Load() == conn.reads
	return connect(t, pool, p).link == conn.link, wasSilent
}

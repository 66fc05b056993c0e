package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The gap is the time between Connect and RoundTrip, in which the durable mark is
// written. Whatever happens in it, nothing was sent.

// inEverySpeech runs a test once for each protocol.
func inEverySpeech(t *testing.T, f func(*testing.T, speech)) {
	for _, s := range everySpeech {
		t.Run(s.name, func(t *testing.T) { f(t, s) })
	}
}

// everyLine waits for the peer to have n connections that are set up, then calls f
// for each.
func (p *peer) everyLine(t *testing.T, n int, f func(*line)) {
	t.Helper()
	eventually(t, "the peer has its connections", func() bool {
		ready := 0
		p.each(func(l *line) {
			_, secure := l.conn.(*tls.Conn)
			if secure == p.speech.tls && (l.muxed != nil) == p.speech.mux {
				ready++
			}
		})
		return ready == n
	})
	p.each(f)
}

func TestAConnectionThatThePeerClosesInTheGapSendsNothing(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		for how, end := range map[string]func(*line){
			"close": (*line).close, "half-close": (*line).halfClose, "RST": (*line).reset,
		} {
			for _, reused := range []bool{false, true} {
				t.Run(how+"/"+either(reused, "reused", "fresh"), func(t *testing.T) {
					p := newPeer(t, s, nil)
					pool := New(s.options())
					defer pool.Close()
					if reused {
						warm(t, pool, p, 1)
					}
					conn := connect(t, pool, p)
					p.everyLine(t, 1, end)
					eventually(t, "the close is noticed", conn.link.wire.ended.Load)

					_, err := conn.RoundTrip(p.request("k", "x"))
					if e := sendError(t, err); !e.NotSent {
						t.Errorf("in doubt: %v", e)
					}
					eventually(t, "the pool is empty", func() bool { return pool.Stats() == Stats{} })
					p.finallyDelivered(t, "k", 0)
				})
			}
		}
	})
}

func TestGoAwayInTheGapSendsNothing(t *testing.T) {
	for _, s := range []speech{plain2, secure2} {
		for _, doubt := range []bool{false, true} { // our own knowledge: no trust is needed
			t.Run(s.name, func(t *testing.T) {
				p := newPeer(t, s, nil)
				options := s.options()
				options.DoubtRefusals = doubt
				pool := New(options)
				defer pool.Close()
				conn := connect(t, pool, p)
				p.everyLine(t, 1, func(l *line) { l.muxed.goAway(0, codeNo) })
				eventually(t, "GOAWAY is noticed", func() bool { return conn.link.cc.Available() == 0 })
				_, err := conn.RoundTrip(p.request("k", "x"))
				if e := sendError(t, err); !e.NotSent {
					t.Errorf("in doubt: %v", e)
				}
				p.finallyDelivered(t, "k", 0)
			})
		}
	}
}

func TestARequestThatIsRefusedHereSendsNothingAndCostsNoConnection(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		warm(t, pool, p, 1)

		cancelled := newDeadline()
		cancelled.pass(context.Canceled)
		late := newDeadline()
		late.pass(context.DeadlineExceeded)
		elsewhere := p.request("k", "x")
		elsewhere.URL.Host = "other.example"
		noURL := p.request("k", "x")
		noURL.URL = nil

		for name, c := range map[string]struct {
			req     *http.Request
			timeout bool
		}{
			"cancelled":        {req: p.request("k", "x").WithContext(cancelled)},
			"too late":         {req: p.request("k", "x").WithContext(late), timeout: true},
			"for another host": {req: elsewhere},
			"without a URL":    {req: noURL},
		} {
			conn := connect(t, pool, p)
			_, err := conn.RoundTrip(c.req)
			if e := sendError(t, err); !e.NotSent || e.Timeout != c.timeout {
				t.Errorf("%s: NotSent %v, Timeout %v: %v", name, e.NotSent, e.Timeout, e)
			}
		}
		if got, _ := exchangeOn(t, connect(t, pool, p), p.request("warm", "x")); got != 200 {
			t.Errorf("status %d", got)
		}
		if n := p.connections(); n != 1 {
			t.Errorf("%d connections, want one", n)
		}
		p.finallyDelivered(t, "k", 0)
	})
}

func TestARequestThatNetHTTPRefusesIsNotSent(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		for name, spoil := range map[string]func(*http.Request){
			"no header":  func(r *http.Request) { r.Header = nil },
			"bad header": func(r *http.Request) { r.Header["A"] = []string{"a\nb"} },
			"bad method": func(r *http.Request) { r.Method = "PO ST" },
		} {
			closed := make(chan struct{}, 9)
			req := p.request("k", "x")
			req.Body = closeTeller{strings.NewReader("x"), closed}
			spoil(req)
			_, err := connect(t, pool, p).RoundTrip(req)
			if e := sendError(t, err); !e.NotSent {
				t.Errorf("%s: in doubt: %v", name, e)
			}
			occurs(t, "the body is closed", closed)
		}
		p.finallyDelivered(t, "k", 0)
	})
}

type closeTeller struct {
	io.Reader
	closed chan<- struct{}
}

func (c closeTeller) Close() error { c.closed <- struct{}{}; return nil }

func TestAConnectionSendsOnce(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()

		conn := connect(t, pool, p)
		exchangeOn(t, conn, p.request("k", "x"))
		_, err := conn.RoundTrip(p.request("again", "x"))
		if e := sendError(t, err); e.NotSent || !errors.Is(e, ErrSpent) {
			t.Errorf("second RoundTrip: NotSent %v, %v", e.NotSent, e)
		}
		conn.Release()

		released := connect(t, pool, p)
		released.Release()
		released.Release()
		_, err = released.RoundTrip(p.request("again", "x"))
		if e := sendError(t, err); e.NotSent || !errors.Is(e, ErrSpent) {
			t.Errorf("RoundTrip after Release: NotSent %v, %v", e.NotSent, e)
		}
		if got := pool.Stats(); got != (Stats{Idle: 1}) {
			t.Errorf("%+v, want one idle connection", got)
		}
		p.finallyDelivered(t, "again", 0)
	})
}

func TestAReleasedConnectionIsUsedAgain(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		for i := range 3 {
			conn := connect(t, pool, p)
			if conn.Reused() != (i > 0) {
				t.Errorf("%d: Reused() = %v", i, conn.Reused())
			}
			conn.Release()
		}
		p.everyLine(t, 1, func(*line) {})
		if n := p.connections(); n != 1 {
			t.Errorf("%d connections, want one", n)
		}
	})
}

package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// dial opens a raw connection to the proxy with a small receive buffer and sends
// text; it reads nothing by itself.
func (r *rig) dial(text string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.front.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4096)
	io.WriteString(c, text)
	return c
}

// TestACallerThatStopsReadingHoldsNothing: the upstream answered at once and
// whole; the effect is recorded although the caller takes none of it.
func TestACallerThatStopsReadingHoldsNothing(t *testing.T) {
	for name, limit := range map[string]int64{"passed on": 1000, "kept": 64 << 20} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Write(make([]byte, 24<<20))
			})
			r := start(t, p.URL, func(r *policy.Route) { r.Limits.Response, r.Timeout = limit, 5*time.Second }, func(c *Config) { c.BodyTimeout = 300 * time.Millisecond })
			r.dial("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx")
			g := r.call("GET", lookupPath("k")+"?wait=1ms", "")
			for deadline := time.Now().Add(10 * time.Second); !strings.Contains(g.body, `"state": "completed"`) && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				g = r.call("GET", lookupPath("k"), "")
			}
			r.reads("k", keystore.Completed)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := r.proxy.Shutdown(ctx); err != nil {
				t.Errorf("it holds the stop: %v", err)
			}
			p.counted("k", 1)
		})
	}
}

// TestAStopDoesNotWaitForWhatIsNoEffect: an upload that stalls has claimed
// nothing, and a duplicate that waits has sent nothing.
func TestAStopDoesNotWaitForWhatIsNoEffect(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(http.ResponseWriter, *http.Request) { <-release })
	one := start(t, p.URL, nil, nil)
	two := start(t, p.URL, nil, func(c *Config) { c.Ledger = one.store; c.Instance = "two" })
	done := make(chan got, 1)
	go func() { done <- one.post("k", "x") }()
	p.await("k")
	two.dial("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: stalled\r\nContent-Length: 10\r\n\r\nx")
	waiter := make(chan got, 1)
	go func() { waiter <- two.post("k", "x", "Prefer", "wait=60") }()
	for two.proxy.waiters.len() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	began := time.Now()
	if err := two.proxy.Shutdown(ctx); err != nil || time.Since(began) > 8*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	(<-waiter).is(t, 409, codeInFlight, retrySameKey)
	close(release)
	(<-done).ok(t, 200)
	p.counted("k", 1)
	p.counted("stalled", 0)
}

func TestAWaiterLeavesWithItsCaller(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	r := start(t, p.URL, nil, nil)
	go r.post("k", "x")
	p.await("k")
	var conns []net.Conn
	for range 10 {
		conns = append(conns, r.dial("POST /v1/charges HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nPrefer: wait=60\r\nContent-Length: 1\r\n\r\nx"))
	}
	for r.proxy.waiters.len() < 10 {
		time.Sleep(time.Millisecond)
	}
	for _, c := range conns {
		c.Close()
	}
	for deadline := time.Now().Add(5 * time.Second); r.proxy.waiters.len() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d still wait for callers that left", r.proxy.waiters.len())
		}
	}
}

// TestAStatusThatIsNoAnswerIsADoubt: the caller learns it, and nothing panics.
func TestAStatusThatIsNoAnswerIsADoubt(t *testing.T) {
	for _, status := range []string{"000", "099", "101", "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", status)
						time.Sleep(50 * time.Millisecond)
					}
				}()
			}
		}()
		r := start(t, "http://"+l.Addr().String(), nil, nil)
		r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
		r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
		if g := r.call("GET", "/", ""); g.status != 502 {
			t.Errorf("%s to a GET: %d %v", status, g.status, g.err)
		}
		if strings.Contains(r.log.String(), "panic") {
			t.Errorf("%s: a panic", status)
		}
	}
}

func TestTrailersFollowTheRulesOfFields(t *testing.T) {
	seen := make(chan http.Header, 1)
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Trailer.Clone()
		w.Header().Set("Trailer", "X-Sum, Fencepost-State, Idempotent-Replayed")
		io.WriteString(w, "body")
		w.Header().Set("X-Sum", "1")
		w.Header().Set("Fencepost-State", "forged")
		w.Header().Set("Idempotent-Replayed", "true")
	})
	r := start(t, p.URL, nil, nil)
	const tail = "4\r\nbody\r\n0\r\nX-Fine: 1\r\nFencepost-Authorization: Bearer SECRET\r\nAuthorization: Bearer SECRET\r\nX-Undeclared: 1\r\nIdempotency_Key: 2\r\n\r\n"
	for _, c := range []struct{ line, want string }{
		{"POST / HTTP/1.1\r\nIdempotency-Key: k", "map[X-Fine:[1] X-Undeclared:[1]]"},
		{"GET / HTTP/1.1", "map[X-Fine:[1]]"},
	} {
		conn := r.dial(c.line + "\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Fine, Fencepost-Authorization, Authorization, Idempotency_Key\r\n\r\n" + tail)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		if got := fmt.Sprint(<-seen); got != c.want {
			t.Errorf("%s: the upstream got trailers %s, want %s", c.line, got, c.want)
		}
		if resp.Trailer.Get("X-Sum") != "1" || resp.Trailer.Get("Fencepost-State") != "" || resp.Trailer.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: the caller got trailers %v", c.line, resp.Trailer)
		}
	}
}

func TestAnAnswersHeaderIsBounded(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Big", strings.Repeat("x", 100<<10)) })
	r := start(t, p.URL, nil, func(c *Config) { c.Upstream.MaxHeaderBytes = 10 << 10 })
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	if g := r.call("GET", "/", ""); g.status != 502 {
		t.Errorf("%d", g.status)
	}
}

package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
	"fencepost/policy"
)

func TestADuplicateGetsTheRecordedAnswer(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	first := r.post("k1", `{"amount":100}`)
	first.ok(t, 201, `{"key":"k1","effect":1}`)
	if first.header.Get("Idempotent-Replayed") != "" || first.header.Get("Idempotency-Key") != "k1" || first.header.Get("Fencepost-State") != "completed" || first.header.Get("Fencepost-Operation") == "" {
		t.Errorf("first answer: %v", first.header)
	}
	again := r.post("k1", `{"amount":100}`)
	again.ok(t, 201, first.body)
	if again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Fencepost-Operation") != first.header.Get("Fencepost-Operation") || again.header.Get("Content-Type") != "application/json" {
		t.Errorf("replay: %v", again.header)
	}
	r.post(`"k1"`, `{"amount":100}`).ok(t, 201, first.body)
	p.counted("k1", 1)
	r.reads("k1", keystore.Completed)
	r.call("GET", lookupPath("k1")+"/response", "").ok(t, 201, first.body)
}

func TestTheSameKeyWithAnotherRequestIsRefusedInEveryState(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/unknown":
			w.WriteHeader(500)
		case "/free":
			w.WriteHeader(429)
		case "/flight":
			<-release
		}
	})
	r := start(t, p.URL, nil, nil)
	r.call("POST", "/done", "x", "Idempotency-Key", "done").ok(t, 200)
	r.call("POST", "/unknown", "x", "Idempotency-Key", "unknown").ok(t, 500)
	r.call("POST", "/free", "x", "Idempotency-Key", "free").ok(t, 429)
	flight := make(chan got)
	go func() { flight <- r.call("POST", "/flight", "x", "Idempotency-Key", "flight") }()
	p.await("flight")
	for _, key := range []string{"done", "unknown", "free", "flight"} {
		for name, g := range map[string]got{
			"payload": r.call("POST", "/"+key, "y", "Idempotency-Key", key),
			"path":    r.call("POST", "/other", "x", "Idempotency-Key", key),
			"query":   r.call("POST", "/"+key+"?a=1", "x", "Idempotency-Key", key),
			"method":  r.call("PUT", "/"+key, "x", "Idempotency-Key", key),
			"longer":  r.call("POST", "/"+key, "xx", "Idempotency-Key", key),
			"empty":   r.call("POST", "/"+key, "", "Idempotency-Key", key),
		} {
			g.is(t, 422, codeConflict, retryNewKey)
			if g.header.Get("Fencepost-Operation") != "" || g.prob.State != "" {
				t.Errorf("%s/%s: a conflict tells about the other request: %s", key, name, g.body)
			}
		}
		p.counted(key, 1)
	}
	close(release)
	(<-flight).ok(t, 200)
}

func TestAChangedChunkedBodyIsAnotherRequest(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	send := func(body string) got {
		req, _ := http.NewRequest("POST", r.front.URL+"/v1", struct{ io.Reader }{strings.NewReader(body)})
		req.ContentLength = -1
		req.Header.Set("Idempotency-Key", "k")
		return do(req)
	}
	send("one").ok(t, 201)
	send("two").is(t, 422, codeConflict, retryNewKey)
	send("one").ok(t, 201)
	// The same bytes with a declared length are the same request.
	r.call("POST", "/v1", "one", "Idempotency-Key", "k").ok(t, 201)
	p.counted("k", 1)
}

func TestAHundredDuplicatesAtOnceAreOneEffect(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond)
		io.WriteString(w, "done")
	})
	r := start(t, p.URL, nil, nil)
	var wg sync.WaitGroup
	var replayed, first atomic.Int32
	for i := range 100 {
		wg.Go(func() {
			h := []string{}
			if i%2 == 0 {
				h = []string{"Prefer", "wait=10"}
			}
			g := r.post("k", "x", h...)
			switch {
			case g.status == 200 && g.header.Get("Idempotent-Replayed") == "true" && g.body == "done":
				replayed.Add(1)
			case g.status == 200 && g.body == "done":
				first.Add(1)
			case g.status == 409 && g.prob.Code == codeInFlight && g.prob.Retry == retrySameKey && g.header.Get("Retry-After") == "1" && i%2 == 1:
			default:
				t.Errorf("%d: %d %s %v", i, g.status, g.body, g.err)
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 || replayed.Load() < 49 {
		t.Errorf("%d first answers, %d replays", first.Load(), replayed.Load())
	}
	p.counted("k", 1)
}

func TestTheCallerMayLeaveAndTheEffectIsRecorded(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		io.WriteString(w, "late but true")
	})
	r := start(t, p.URL, nil, nil)
	ctx, leave := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", r.front.URL+"/v1/charges", strings.NewReader("x"))
	req.Header.Set("Idempotency-Key", "k")
	gone := make(chan got)
	go func() { gone <- do(req) }()
	p.await("k")
	leave()
	if g := <-gone; g.err == nil {
		t.Fatalf("the caller got %v", g)
	}
	if d := r.lookup("k"); d.State != keystore.Dispatched || d.Retry != retrySameKey {
		t.Errorf("in flight it reads %v, retry %v", d.State, d.Retry)
	}
	close(release)
	g := r.call("GET", lookupPath("k")+"?wait=10s", "")
	if !strings.Contains(g.body, `"state": "completed"`) {
		t.Fatalf("lookup: %s", g.body)
	}
	r.call("GET", lookupPath("k")+"/response", "").ok(t, 200, "late but true")
	r.post("k", "x").ok(t, 200, "late but true")
	p.counted("k", 1)
}

// TestWhatAnAnswerIsWorth has a row for every class of DESIGN section 6.
func TestWhatAnAnswerIsWorth(t *testing.T) {
	for _, c := range []struct {
		status int
		state  keystore.State
		again  func(*testing.T, got)
		sends  int
	}{
		{200, keystore.Completed, replays, 1},
		{204, keystore.Completed, replays, 1},
		{302, keystore.Completed, replays, 1},
		{307, keystore.Completed, replays, 1},
		{308, keystore.Completed, replays, 1},
		{400, keystore.Completed, replays, 1},
		{402, keystore.Completed, replays, 1},
		{404, keystore.Completed, replays, 1},
		{409, keystore.Completed, replays, 1},
		{422, keystore.Completed, replays, 1},
		{401, keystore.Reserved, passes, 2},
		{407, keystore.Reserved, passes, 2},
		{408, keystore.Reserved, passes, 2},
		{425, keystore.Reserved, passes, 2},
		{429, keystore.Reserved, passes, 2},
		{500, keystore.Unknown, doubts, 1},
		{502, keystore.Unknown, doubts, 1},
		{503, keystore.Unknown, doubts, 1},
		{504, keystore.Unknown, doubts, 1},
		{599, keystore.Unknown, doubts, 1},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(c.status)
				if bodyAllowed(c.status) {
					fmt.Fprintf(w, "answer %d", c.status)
				}
			})
			r := start(t, p.URL, nil, nil)
			g := r.post("k", "x")
			g.ok(t, c.status)
			if g.header.Get("Fencepost-State") != c.state.String() {
				t.Errorf("Fencepost-State %q", g.header.Get("Fencepost-State"))
			}
			if g.header.Get("Retry-After") != "7" || g.header.Get("Location") != "/elsewhere" {
				t.Errorf("the answer was changed: %v", g.header)
			}
			r.reads("k", c.state)
			c.again(t, r.post("k", "x"))
			p.counted("k", c.sends)
		})
	}
}

func replays(t *testing.T, g got) {
	t.Helper()
	if g.err != nil || g.header.Get("Idempotent-Replayed") != "true" || g.header.Get("Location") != "/elsewhere" {
		t.Errorf("not a replay: %d %v %v", g.status, g.header, g.err)
	}
	if bodyAllowed(g.status) && g.body != fmt.Sprintf("answer %d", g.status) {
		t.Errorf("body %q", g.body)
	}
}

func passes(t *testing.T, g got) {
	t.Helper()
	if g.err != nil || g.header.Get("Idempotent-Replayed") != "" || g.header.Get("Fencepost-State") != "reserved" {
		t.Errorf("not sent again: %d %v %v", g.status, g.header, g.err)
	}
}

func doubts(t *testing.T, g got) {
	t.Helper()
	g.is(t, 409, codeUnknown, retryAfterResolution)
	if g.prob.OriginalStatus == 0 || g.prob.State != "unknown" || g.prob.Lookup != lookupPath("k") || g.prob.Operation == "" {
		t.Errorf("an agent cannot act on %s", g.body)
	}
}

func TestNothingIsSentWhereNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	r := start(t, "http://"+addr, nil, nil)
	g := r.post("k", "x")
	g.is(t, 502, codeUnreachable, retrySameKey)
	if g.prob.State != "reserved" {
		t.Errorf("state %q", g.prob.State)
	}
	r.reads("k", keystore.Reserved)
	// The key is free: the same request goes through once somebody listens.
	l, err = net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("the port was taken in the meantime: %v", err)
	}
	p := newProvider(t, nil)
	go http.Serve(l, p)
	t.Cleanup(func() { l.Close() })
	r.post("k", "x").ok(t, 201)
	p.counted("k", 1)
	if d := r.lookup("k"); d.Attempt != 2 {
		t.Errorf("attempt %d", d.Attempt)
	}
}

func TestATimeoutAfterTheSendIsUnknown(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	r := start(t, p.URL, func(r *policy.Route) { r.Timeout = 100 * time.Millisecond }, nil)
	g := r.post("k", "x")
	g.is(t, 504, codeUnknown, retryAfterResolution)
	if g.prob.State != "unknown" || g.prob.Lookup != lookupPath("k") {
		t.Errorf("%s", g.body)
	}
	r.reads("k", keystore.Unknown)
	r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
	r.call("GET", lookupPath("k")+"/response", "").is(t, 409, codeUnknown, retryAfterResolution)
	p.counted("k", 1)
}

// TestALostConnectionIsUnknown: the origin commits and the connection dies in
// every way it can.
func TestALostConnectionIsUnknown(t *testing.T) {
	hijack := func(f func(*net.TCPConn, *bufio.ReadWriter)) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			f(c.(*net.TCPConn), rw)
			c.Close()
		}
	}
	for name, handle := range map[string]http.HandlerFunc{
		"close": hijack(func(*net.TCPConn, *bufio.ReadWriter) {}),
		"reset": hijack(func(c *net.TCPConn, _ *bufio.ReadWriter) { c.SetLinger(0) }),
		"half of a status line": hijack(func(_ *net.TCPConn, rw *bufio.ReadWriter) {
			rw.WriteString("HTTP/1.1 20")
			rw.Flush()
		}),
		"no HTTP at all": hijack(func(_ *net.TCPConn, rw *bufio.ReadWriter) {
			rw.WriteString("garbage\r\n\r\n")
			rw.Flush()
		}),
		"body shorter than declared": hijack(func(_ *net.TCPConn, rw *bufio.ReadWriter) {
			rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
			rw.Flush()
		}),
		"chunked body cut short": hijack(func(_ *net.TCPConn, rw *bufio.ReadWriter) {
			rw.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
			rw.Flush()
		}),
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, handle)
			r := start(t, p.URL, nil, nil)
			// Twice, so that the second time comes on a connection that was used
			// before wherever the first answer left one.
			for _, key := range []string{"k1", "k2"} {
				r.post(key, "x").is(t, 502, codeUnknown, retryAfterResolution)
				r.reads(key, keystore.Unknown)
				r.post(key, "x").is(t, 409, codeUnknown, retryAfterResolution)
				p.counted(key, 1)
			}
			// Without a body too: that is where Go's own client sends again.
			r.post("k3", "").is(t, 502, codeUnknown, retryAfterResolution)
			p.counted("k3", 1)
		})
	}
}

// TestAReusedConnectionThatDiesIsNotSentAgain is the case that Go's own client
// gets wrong: one answered POST, then a keyed POST read whole and not answered.
func TestAReusedConnectionThatDiesIsNotSentAgain(t *testing.T) {
	for _, body := range []string{"x", ""} {
		p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") == "second" {
				c, _, _ := http.NewResponseController(w).Hijack()
				c.Close()
			}
		})
		r := start(t, p.URL, nil, nil)
		r.post("first", body).ok(t, 200)
		r.post("second", body).is(t, 502, codeUnknown, retryAfterResolution)
		p.counted("second", 1)
	}
}

// TestAnIdleConnectionThatThePeerClosedCostsNothing: zero bytes were written,
// which is proof.
func TestAnIdleConnectionThatThePeerClosedCostsNothing(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	for i := range 20 {
		key := fmt.Sprint("k", i)
		r.post(key, "x").ok(t, 201)
		p.CloseClientConnections()
		p.counted(key, 1)
	}
}

func TestALargeResponseIsPassedOnButNotKept(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 4096)
	for name, chunked := range map[string]bool{"declared length": false, "chunked": true} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
				if chunked {
					http.NewResponseController(w).Flush()
				} else {
					w.Header().Set("Content-Length", fmt.Sprint(len(big)))
				}
				io.WriteString(w, big)
			})
			r := start(t, p.URL, func(r *policy.Route) { r.Limits.Response = 1000 }, nil)
			r.post("k", "x").ok(t, 200, big)
			d := r.call("GET", lookupPath("k")+"?wait=5s", "")
			if !strings.Contains(d.body, `"retained": false`) || !strings.Contains(d.body, fmt.Sprintf(`"body_size": %d`, len(big))) {
				t.Errorf("lookup %s", d.body)
			}
			g := r.post("k", "x")
			g.is(t, 409, codeNotRetained, retryNever)
			if g.prob.OriginalStatus != 200 {
				t.Errorf("%s", g.body)
			}
			p.counted("k", 1)
		})
	}
}

func TestAStreamFlowsAndIsRecordedAtItsEnd(t *testing.T) {
	step := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			<-step
		}
	})
	r := start(t, p.URL, nil, nil)
	req, _ := http.NewRequest("POST", r.front.URL+"/v1/charges", strings.NewReader("x"))
	req.Header.Set("Idempotency-Key", "k")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for i := range 3 {
		// The next part is only sent after this one was seen.
		if l, err := in.ReadString('\n'); err != nil || l != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("part %d: %q %v", i, l, err)
		}
		in.ReadString('\n')
		if i == 0 {
			r.reads("k", keystore.Dispatched)
		}
		step <- struct{}{}
	}
	io.Copy(io.Discard, in)
	r.call("GET", lookupPath("k")+"?wait=5s", "")
	r.post("k", "x").ok(t, 200, "data: 0\n\ndata: 1\n\ndata: 2\n\n")
	p.counted("k", 1)
}

// TestAnAnswerThatTakesItsTimeFlows: no media type says so, but a caller waits for
// each part.
func TestAnAnswerThatTakesItsTimeFlows(t *testing.T) {
	seen := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"words":["one"`)
		http.NewResponseController(w).Flush()
		<-seen
		if r.Header.Get("Idempotency-Key") == "cut" {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, `,"two"]}`)
	})
	p.Config.ErrorLog = nil
	r := start(t, p.URL, nil, func(c *Config) { c.StreamAfter = 20 * time.Millisecond })
	for _, key := range []string{"k", "cut"} {
		c := r.dial("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: " + key + "\r\nContent-Length: 0\r\n\r\n")
		c.SetDeadline(time.Now().Add(10 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len(`{"words":["one"`))
		if _, err := io.ReadFull(resp.Body, first); err != nil {
			t.Fatal(err)
		}
		r.reads(key, keystore.Dispatched)
		seen <- struct{}{}
		rest, err := io.ReadAll(resp.Body)
		if key == "cut" {
			if err == nil {
				t.Errorf("the caller took a cut answer for a whole one: %q", rest)
			}
			r.call("GET", lookupPath(key)+"?wait=1ms", "")
			continue
		}
		if err != nil || string(rest) != `,"two"]}` {
			t.Errorf("%q %v", rest, err)
		}
	}
	g := r.call("POST", "/", "", "Idempotency-Key", "k")
	if g.ok(t, 200, `{"words":["one","two"]}`); g.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%v", g.header)
	}
	p.counted("k", 1)
	r.call("POST", "/", "", "Idempotency-Key", "cut").is(t, 409, codeUnknown, retryAfterResolution)
	p.counted("cut", 1)
}

// TestAnUndeclaredAnswerIsBufferedWhileItIsQuick: it is recorded before the caller
// sees it, and a cut one is no answer.
func TestAnUndeclaredAnswerIsBufferedWhileItIsQuick(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		for range 10 {
			io.WriteString(w, strings.Repeat("x", 10_000))
			http.NewResponseController(w).Flush()
		}
		if r.Header.Get("Idempotency-Key") == "cut" {
			panic(http.ErrAbortHandler)
		}
	})
	p.Config.ErrorLog = nil
	r := start(t, p.URL, nil, func(c *Config) { c.StreamAfter = time.Hour })
	for range 2 {
		r.post("k", "x").ok(t, 200, strings.Repeat("x", 100_000))
	}
	r.post("cut", "x").is(t, 502, codeUnknown, retryAfterResolution)
	p.counted("k", 1)
	p.counted("cut", 1)
}

func TestAStreamCutShortIsUnknownAndNeverReplayed(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 0\n\n")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	p.Config.ErrorLog = nil
	r := start(t, p.URL, nil, nil)
	if g := r.post("k", "x"); g.err == nil {
		t.Fatalf("the caller took a cut stream for a whole one: %q", g.body)
	}
	r.reads("k", keystore.Unknown)
	r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
	p.counted("k", 1)
}

func TestASlowLivingOwnerKeepsItsHold(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release; io.WriteString(w, "done") })
	r := start(t, p.URL, nil, func(c *Config) { c.OwnerDeadline = 60 * time.Millisecond })
	done := make(chan got)
	go func() { done <- r.post("k", "x") }()
	p.await("k")
	first := r.lookup("k")
	for d := first; d.Version < first.Version+3; d = r.lookup("k") {
		if d.State != keystore.Dispatched {
			t.Fatalf("a living owner's operation reads %v", d.State)
		}
		time.Sleep(5 * time.Millisecond)
	}
	close(release)
	(<-done).ok(t, 200, "done")
	if d := r.lookup("k"); len(d.History) != 3 {
		t.Errorf("extending left %d lines in the history", len(d.History))
	}
}

func TestAnOwnerThatWentSilentReadsUnknown(t *testing.T) {
	fake := storetest.NewFake()
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release; io.WriteString(w, "late") })
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	done := make(chan got)
	go func() { done <- r.post("k", "x") }()
	p.await("k")
	fake.Advance(time.Minute)
	r.reads("k", keystore.Unknown)
	r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
	close(release)
	// Its own late answer is evidence, and settles the doubt.
	(<-done).ok(t, 200, "late")
	r.post("k", "x").ok(t, 200, "late")
	p.counted("k", 1)
}

func TestARetryAfterRetentionIsGone(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	r.post("k", "x").ok(t, 201)
	r.call("POST", "/v1/charges", "x", "Idempotency-Key", "large").ok(t, 201)
	for _, swept := range []bool{false, true} {
		if !swept {
			fake.Advance(25 * time.Hour)
		} else if err := r.proxy.Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.post("k", "x").is(t, 410, codeKeyExpired, retryNever)
		r.post("k", "y").is(t, 422, codeConflict, retryNewKey)
		r.call("GET", lookupPath("k")+"/response", "").is(t, 410, codeKeyExpired, retryNever)
	}
	p.counted("k", 1)
	rep, err := fake.Get(context.Background(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil || len(rep.Body) != 0 || !rep.Record.Tombstone {
		t.Errorf("the sweep left %q, tombstone %v, %v", rep.Body, rep.Record.Tombstone, err)
	}
	// After the tombstone's time nothing is left, and the ledger does not grow.
	fake.Advance(721 * time.Hour)
	if err := r.proxy.Sweep(context.Background()); err != nil || fake.Len() != 0 {
		t.Errorf("%d records left, %v", fake.Len(), err)
	}
}

func TestASweepNeverTakesADoubt(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	r.post("k", "x").ok(t, 500)
	fake.Advance(100000 * time.Hour)
	if err := r.proxy.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
	p.counted("k", 1)
}

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"fencepost/keystore/storetest"
	"fencepost/policy"
)

func TestWhatIsNotGovernedLeavesNoRecord(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		key    string
		route  func(*policy.Route)
	}{
		"a safe method":              {"GET", "", nil},
		"a safe method with a key":   {"GET", "k", nil},
		"enforcement off":            {"POST", "k", func(r *policy.Route) { r.Enforce = false }},
		"a method not listed":        {"DELETE", "", func(r *policy.Route) { r.Methods = []string{"POST"} }},
		"no key where that is fine":  {"POST", "", func(r *policy.Route) { r.Key.Missing = policy.MissingPass }},
		"options":                    {"OPTIONS", "", nil},
		"head":                       {"HEAD", "", nil},
		"a method of its own making": {"PURGE", "", func(r *policy.Route) { r.Methods = []string{"POST"} }},
	} {
		t.Run(name, func(t *testing.T) {
			fake := storetest.NewFake()
			p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Method", r.Method)
				io.WriteString(w, "plain")
			})
			r := start(t, p.URL, c.route, func(cfg *Config) { cfg.Ledger = fake })
			h := []string{}
			if c.key != "" {
				h = append(h, "Idempotency-Key", c.key)
			}
			for range 2 {
				g := r.call(c.method, "/x?a=b", "", h...)
				g.ok(t, 200)
				if g.header.Get("X-Method") != c.method || g.header.Get("Fencepost-Operation") != "" {
					t.Errorf("%v", g.header)
				}
			}
			if fake.Len() != 0 || len(fake.Calls()) != 0 {
				t.Errorf("the ledger was asked: %v", fake.Calls())
			}
			p.counted(c.key, 2)
		})
	}
}

func TestAListedMethodIsGovernedAndAnotherWithAKeyToo(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.Methods = []string{"POST"} }, nil)
	for range 2 {
		r.call("DELETE", "/x", "", "Idempotency-Key", "k").ok(t, 201)
	}
	p.counted("k", 1)
}

// TestAPassedRequestIsNotSentAgain: what is passed through keeps no record, but
// a request that is not safe is sent once all the same.
func TestAPassedRequestIsNotSentAgain(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "second" {
			c, _, _ := http.NewResponseController(w).Hijack()
			c.Close()
		}
	})
	r := start(t, p.URL, func(r *policy.Route) { r.Enforce = false }, nil)
	r.post("first", "").ok(t, 200)
	g := r.post("second", "")
	g.is(t, 502, codeUnknown, retryAfterResolution)
	p.counted("second", 1)
}

func TestBodiesFlowBothWaysWhileTheyAreMade(t *testing.T) {
	p := newProvider(t, nil)
	// The provider's own reading of the body would get in the way.
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprintf(w, "echo %s", line)
			rc.Flush()
		}
	})
	r := start(t, p.URL, func(r *policy.Route) { r.Enforce = false }, nil)
	pr, pw := io.Pipe()
	req, _ := http.NewRequest("GET", r.front.URL+"/", pr)
	done := make(chan string)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			done <- err.Error()
			return
		}
		in := bufio.NewReader(resp.Body)
		for range 3 {
			line, _ := in.ReadString('\n')
			done <- line
		}
		resp.Body.Close()
	}()
	io.WriteString(pw, "1\n")
	if l := <-done; l != "echo 1\n" {
		t.Fatalf("%q", l)
	}
	io.WriteString(pw, "2\n")
	if l := <-done; l != "echo 2\n" {
		t.Fatalf("%q", l)
	}
	io.WriteString(pw, "3\n")
	<-done
	pw.Close()
}

func TestTrailersPass(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Announced")
		io.WriteString(w, "body")
		w.Header().Set("X-Announced", "1")
		w.Header().Set(http.TrailerPrefix+"X-Late", "2")
	})
	r := start(t, p.URL, nil, nil)
	for _, method := range []string{"GET", "POST", "POST"} {
		req, _ := http.NewRequest(method, r.front.URL+"/", nil)
		req.Header.Set("Idempotency-Key", "k")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != "body" || resp.Trailer.Get("X-Announced") != "1" || resp.Trailer.Get("X-Late") != "2" {
			t.Errorf("%s replayed=%s: %q %v trailer %v", method, resp.Header.Get("Idempotent-Replayed"), b, err, resp.Trailer)
		}
	}
	p.counted("k", 2) // one GET, which is passed, and one POST
}

func TestOnlyWebSocketIsSwitchedTo(t *testing.T) {
	p := newProvider(t, nil)
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintf(w, "no upgrade, settings %q", r.Header.Get("Http2-Settings"))
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprintf(rw, "echo %s", line)
		rw.Flush()
	})
	r := start(t, p.URL, nil, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(r.front.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v %v", resp, err)
	}
	io.WriteString(c, "hello\n")
	if l, err := in.ReadString('\n'); err != nil || l != "echo hello\n" {
		t.Fatalf("%q %v", l, err)
	}
	for _, h := range [][]string{
		{"Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "x"},
		{"Connection", "Upgrade", "Upgrade", "TLS/1.0"},
	} {
		r.call("GET", "/", "", h...).ok(t, 200, `no upgrade, settings ""`)
	}
	// A keyed mutation never leaves HTTP.
	r.call("POST", "/", "", "Idempotency-Key", "k", "Connection", "Upgrade", "Upgrade", "websocket").ok(t, 200, `no upgrade, settings ""`)
}

func TestAPassedAnswerCutShortIsNotTakenForWhole(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	r := start(t, p.URL, nil, nil)
	if g := r.call("GET", "/", ""); g.err == nil {
		t.Errorf("%d %q", g.status, g.body)
	}
}

func TestRedirectsArePassedOnAndNotFollowed(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	r := start(t, p.URL, nil, nil)
	g := r.post("k", "x")
	g.ok(t, 307)
	if g.header.Get("Location") != "/elsewhere" {
		t.Errorf("%v", g.header)
	}
	p.counted("k", 1)
}

// TestAFailedUpgradeEndsItsConnection: what follows on it could not be followed.
func TestAFailedUpgradeEndsItsConnection(t *testing.T) {
	r := start(t, "http://127.0.0.1:1", nil, nil)
	conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 502 || !resp.Close {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestACallerThatDoesNotReadHoldsNoUpstream, where it is not governed either.
func TestACallerThatDoesNotReadHoldsNoUpstream(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 64<<10); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	r := start(t, p.URL, func(r *policy.Route) { r.Enforce = false }, func(c *Config) { c.BodyTimeout = 100 * time.Millisecond })
	conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /v1/charges HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	p.await("")
	for deadline := time.Now().Add(10 * time.Second); r.proxy.ways.plain.pool.Stats().InUse > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the upstream's connection is still held")
		}
	}
}

// TestABodyThatStallsHoldsNoConnection: of what is passed on, too; and one that comes
// slowly is none that stalls.
func TestABodyThatStallsHoldsNoConnection(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.Enforce = false }, func(c *Config) { c.BodyTimeout = 500 * time.Millisecond; c.Upstream.MaxConns = 1 })
	stalled := r.dial("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
	stalled.SetDeadline(time.Now().Add(20 * time.Second))
	if line, err := bufio.NewReader(stalled).ReadString('\n'); err == nil && strings.Contains(line, " 201 ") {
		t.Errorf("%q", line)
	}
	slow := r.dial("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: slow\r\nContent-Length: 10\r\n\r\n")
	slow.SetDeadline(time.Now().Add(20 * time.Second))
	for range 10 {
		time.Sleep(100 * time.Millisecond) // more than the limit as a whole, less at a time
		io.WriteString(slow, "x")
	}
	answers := bufio.NewReader(slow)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil || resp.StatusCode != 201 {
		t.Fatalf("%v %v", resp, err)
	}
	io.Copy(io.Discard, resp.Body)
	// The connection goes on, without a limit that was the body's.
	time.Sleep(700 * time.Millisecond)
	io.WriteString(slow, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp, err = http.ReadResponse(answers, nil); err != nil || resp.StatusCode != 201 {
		t.Errorf("%v %v", resp, err)
	}
}

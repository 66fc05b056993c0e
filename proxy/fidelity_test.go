package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// TestAnswersComeAsTheyWere: passed on, recorded and replayed, whatever their
// form.
func TestAnswersComeAsTheyWere(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, "compressed by the upstream")
	z.Close()
	for name, c := range map[string]struct {
		status int
		header http.Header
		body   string
		chunks bool
	}{
		"no content":       {status: 204},
		"not modified":     {status: 304, header: http.Header{"Etag": {`"v1"`}}},
		"empty":            {status: 200, header: http.Header{"Content-Type": {"text/plain"}}},
		"no media type":    {status: 200, body: "<html>not guessed"},
		"a content coding": {status: 200, header: http.Header{"Content-Encoding": {"gzip"}, "Content-Type": {"text/plain"}}, body: zipped.String()},
		"repeated fields":  {status: 201, header: http.Header{"Link": {"</b>; rel=b", "</a>; rel=a", "</b>; rel=b"}, "X-Empty": {""}, "Content-Type": {"a/b"}}, body: "x"},
		"a redirect":       {status: 307, header: http.Header{"Location": {"https://elsewhere.example/"}, "Content-Type": {"a/b"}}, body: "moved"},
		"in chunks":        {status: 200, header: http.Header{"Content-Type": {"a/b"}}, body: "one,two", chunks: true},
		"every byte":       {status: 200, header: http.Header{"Content-Type": {"application/octet-stream"}}, body: string(allBytes())},
		"an odd status":    {status: 299, header: http.Header{"Content-Type": {"a/b"}}, body: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				for n, v := range c.header {
					h[n] = v
				}
				if c.header["Content-Type"] == nil {
					h["Content-Type"] = nil
				}
				w.WriteHeader(c.status)
				if c.chunks {
					http.NewResponseController(w).Flush()
				}
				if r.Method != "HEAD" && bodyAllowed(c.status) {
					io.WriteString(w, c.body)
				}
			})
			r := start(t, p.URL, nil, nil)
			check := func(what string, g got, body string) {
				t.Helper()
				if g.err != nil || g.status != c.status || g.body != body {
					t.Errorf("%s: %d %q %v, want %d %q", what, g.status, g.body, g.err, c.status, body)
				}
				for n, v := range c.header {
					if !reflect.DeepEqual(g.header[n], v) {
						t.Errorf("%s: %s is %q, want %q", what, n, g.header[n], v)
					}
				}
				if c.header["Content-Type"] == nil && g.header["Content-Type"] != nil {
					t.Errorf("%s: Content-Type %q was made up", what, g.header["Content-Type"])
				}
			}
			check("passed on", r.call("GET", "/", ""), c.body)
			check("HEAD", r.call("HEAD", "/", ""), "")
			check("the first", r.post("k", "x"), c.body)
			again := r.post("k", "x")
			check("the replay", again, c.body)
			if again.header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%v", again.header)
			}
			check("the lookup", r.call("GET", lookupPath("k")+"/response", ""), c.body)
			p.counted("k", 1)
		})
	}
}

func allBytes() []byte {
	b := make([]byte, 1024)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// TestRulesReadWhatWasCompressedAnyway: an upstream that does not heed the wish for
// no coding must not get an ambiguous answer past the rules.
func TestRulesReadWhatWasCompressedAnyway(t *testing.T) {
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, s)
		z.Close()
		return b.String()
	}
	for name, c := range map[string]struct {
		coding, body, state string
	}{
		"gzip, ambiguous": {"gzip", zip(`{"ok":false}`), "unknown"},
		"gzip, clear":     {"gzip", zip(`{"ok":true}`), "completed"},
		"broken gzip":     {"gzip", zip(`{"ok":true}`)[:15], "unknown"},
		"brotli":          {"br", "whatever", "unknown"},
		"two codings":     {"gzip, br", "whatever", "unknown"},
		"a bomb":          {"gzip", zip(strings.Repeat(" ", 5<<20)), "unknown"},
		"none":            {"identity", `{"ok":true}`, "completed"},
	} {
		p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("the upstream was asked for %q", got)
			}
			w.Header().Set("Content-Encoding", c.coding)
			io.WriteString(w, c.body)
		})
		r := start(t, p.URL, func(r *policy.Route) {
			r.Outcomes = []policy.OutcomeRule{{When: expr(t, policy.CompileOutcome, "response.status == 200 && response.json.ok == false"), Class: policy.ClassUnknown}}
		}, nil)
		g := r.post("k", "x", "Accept-Encoding", "gzip")
		if g.ok(t, 200, c.body); g.header.Get("Fencepost-State") != c.state {
			t.Errorf("%s: %v", name, g.header)
		}
	}
}

// TestEveryKindOfStreamFlows: from its first part, before there is a second.
func TestEveryKindOfStreamFlows(t *testing.T) {
	for _, kind := range streamTypes {
		seen := make(chan struct{})
		p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			io.WriteString(w, "first\n")
			http.NewResponseController(w).Flush()
			<-seen
			io.WriteString(w, "second\n")
		})
		r := start(t, p.URL, nil, func(c *Config) { c.StreamAfter = time.Hour })
		for _, method := range []string{"POST", "GET"} {
			c := r.dial(method + " / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
			c.SetDeadline(time.Now().Add(10 * time.Second))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(resp.Body)
			if line, err := in.ReadString('\n'); err != nil || line != "first\n" {
				t.Fatalf("%s %s: %q %v", method, kind, line, err)
			}
			seen <- struct{}{}
			if rest, err := io.ReadAll(in); err != nil || string(rest) != "second\n" {
				t.Errorf("%s %s: %q %v", method, kind, rest, err)
			}
		}
		r.call("GET", lookupPath("k")+"?wait=5s", "")
		r.call("POST", "/", "", "Idempotency-Key", "k").ok(t, 200, "first\nsecond\n")
	}
}

// TestTrailersOfARequestAreSentAndBound: they are part of what was asked for.
func TestTrailersOfARequestAreSentAndBound(t *testing.T) {
	var seen http.Header
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) { seen = r.Trailer.Clone() })
	r := start(t, p.URL, nil, nil)
	post := func(sum string) int {
		c := r.dial(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: %s\r\nIdempotency-Key: other\r\nAuthorization: x\r\n\r\n", sum))
		c.SetDeadline(time.Now().Add(10 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	if status := post("1"); status != 200 || !reflect.DeepEqual(seen, http.Header{"X-Sum": {"1"}}) || p.bodies["k"] != "abc" {
		t.Errorf("%d, the upstream got %v and %q", status, seen, p.bodies["k"])
	}
	if status := post("1"); status != 200 {
		t.Errorf("the same again: %d", status)
	}
	p.counted("k", 1)
}

// TestASlowCallerIsNoSilenceOfTheUpstream: while a caller does not read, the upstream
// cannot be blamed for it.
func TestASlowCallerIsNoSilenceOfTheUpstream(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for part := bytes.Repeat([]byte("x"), 64<<10); part != nil; {
			for range 256 {
				_, _ = w.Write(part)
			}
			part = nil
		}
	})
	r := start(t, p.URL, func(r *policy.Route) { r.Timeout = 200 * time.Millisecond }, nil)
	conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/charges HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
	time.Sleep(600 * time.Millisecond)
	if n, err := io.Copy(io.Discard, conn); err != nil || n < 16<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	r.reads("k", keystore.Completed)
}

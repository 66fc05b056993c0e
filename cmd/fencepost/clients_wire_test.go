package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestCurlWritesOddRequests: forms of HTTP that clients do send, each twice with
// one key: one effect, and a replay.
func TestCurlWritesOddRequests(t *testing.T) {
	t.Parallel()
	server := startHttpbin(t)
	g := newGateway(t, server)
	p := frontOf(t, g, "")
	big := strings.Repeat("0123456789abcdef", 128<<10)
	type row struct {
		law, path string
		flags     []string
		stdin     string
		verbose   string // what curl has to say of the first exchange
	}
	together(t, []row{
		{"HTTP/1.0", "/anything", []string{"-0", "-d", "a=1"}, "", "> POST /anything HTTP/1.0"},
		{"HTTP/1.0, an answer without length", "/stream-bytes/5000?seed=7", []string{"-0", "-d", "a=1"}, "", "> POST /stream-bytes/5000?seed=7 HTTP/1.0"},
		{"HTTP/1.0 with keep-alive", "/anything", []string{"-0", "-H", "Connection: keep-alive", "-d", "a=1"}, "", "HTTP/1.0"},
		{"a big body that waits for 100", "/anything", []string{"--expect100-timeout", "30", "--data-binary", "@-"}, big, "< HTTP/1.1 100 Continue"},
		{"a small body that waits for 100", "/anything", []string{"--expect100-timeout", "30", "-H", "Expect: 100-continue", "-d", "a=1"}, "", "< HTTP/1.1 100 Continue"},
		{"an upload of unknown length", "/anything", []string{"-T", "-"}, "some lines\n", "> Transfer-Encoding: chunked"},
		{"a POST of unknown length", "/anything", []string{"-T", "-", "-X", "POST"}, big, "> Transfer-Encoding: chunked"},
		{"an empty upload of unknown length", "/anything", []string{"-T", "-"}, "", "> Transfer-Encoding: chunked"},
		{"a DELETE without body", "/anything", []string{"-X", "DELETE"}, "", "> DELETE /anything"},
		{"a PATCH", "/anything", []string{"-X", "PATCH", "-d", "{}"}, "", "> PATCH /anything"},
		{"h2c is not switched to", "/anything", []string{"--http2", "-d", "a=1"}, "", "> Upgrade: h2c"},
		{"Accept-Encoding that curl undoes", "/gzip", []string{"--compressed", "-d", "a=1"}, "", "< Content-Encoding: gzip"},
	}, func(r row) string { return r.law }, func(t *testing.T, i int, r row) {
		key := fmt.Sprint("odd-", i)
		do := func(stdin string) reply {
			began := time.Now()
			a, verbose := curl(t, []byte(stdin), append(r.flags, "-H", "Idempotency-Key: "+key, p.url+r.path)...)
			if !strings.Contains(verbose, r.verbose) {
				t.Errorf("curl did not say %q:\n%s", r.verbose, verbose)
			}
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("it took %v", d)
			}
			return a
		}
		first, again := do(r.stdin), do(r.stdin)
		seen := g.once(t, key)
		if first.err != nil || first.status != 200 || uncoded(t, seen.answer) != first.body {
			t.Errorf("%d %v with %d bytes, want the %d of the server", first.status, first.err, len(first.body), len(seen.answer))
		}
		if again.err != nil || again.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the replay is %d %v with %d bytes", again.status, again.err, len(again.body))
		}
		if len(seen.header["Expect"])+len(seen.header["Upgrade"]) > 0 {
			t.Errorf("hop-by-hop fields went on: %v", seen.header)
		}
		if r.stdin != "" {
			if other := do(r.stdin + "!"); other.status != 422 || other.code() != "idempotency_conflict" {
				t.Errorf("another body got %+v", other)
			}
			g.once(t, key)
		}
	})
}

// TestCurlReadsPassEachTime: a safe method has no effect to bind to a key, so one
// that brings a key passes like one that does not.
func TestCurlReadsPassEachTime(t *testing.T) {
	t.Parallel()
	server := startHttpbin(t)
	g := newGateway(t, server)
	p := frontOf(t, g, "")
	for _, method := range []string{"-I", "-G"} {
		direct, _ := curl(t, nil, method, server+"/bytes/100?seed=1")
		if direct.status != 200 || direct.header.Get("Content-Length") == "" {
			t.Fatalf("httpbin itself answers %+v", direct)
		}
		for _, flags := range [][]string{{method}, {method, "-H", "Idempotency-Key: k" + method}, {method, "-H", "Idempotency-Key: k" + method}} {
			r, verbose := curl(t, nil, append(flags, p.url+"/bytes/100?seed=1")...)
			if method == "-I" {
				r.body = direct.body // curl writes the header there, with its date
			}
			if r.err != nil || r.status != 200 || r.body != direct.body || r.header.Get("Content-Length") != direct.header.Get("Content-Length") || r.header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%v: %+v\n%s", flags, r, verbose)
			}
		}
		if n := g.of("k" + method).attempts; n != 2 {
			t.Errorf("%d of 2 reads went through", n)
		}
		if s := p.state("k" + method); s != "none" {
			t.Errorf("a read is recorded as %s", s)
		}
	}
}

// TestCurlIsRefusedBeforeItUploads: nobody asks for a body that is not wanted.
func TestCurlIsRefusedBeforeItUploads(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	r, verbose := curl(t, []byte(strings.Repeat("x", 2<<20)), "--expect100-timeout", "30", "--data-binary", "@-", p.url+"/anything")
	if r.status != 400 || r.code() != "idempotency_key_required" {
		t.Errorf("%+v", r)
	}
	if strings.Contains(verbose, "100 Continue") {
		t.Errorf("the body was asked for:\n%s", verbose)
	}
	if n := g.of("").attempts; n != 0 {
		t.Errorf("%d attempts", n)
	}
}

// TestCurlKeepsOneConnection over posts, replays and refusals.
func TestCurlKeepsOneConnection(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	var args []string
	var want strings.Builder
	for i := range 20 {
		for _, c := range []struct{ body, status string }{{"a=1", "200"}, {"a=1", "200"}, {"a=2", "422"}} {
			if len(args) > 0 {
				args = append(args, "--next")
			}
			args = append(args, "-sS", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n", "-H", fmt.Sprint("Idempotency-Key: k", i), "-d", c.body, p.url+"/anything")
			fmt.Fprintf(&want, "%s 0\n", c.status)
		}
	}
	out, problems, err := piped(clientProgram(t, "curl", args...), nil)
	if w := strings.Replace(want.String(), "200 0", "200 1", 1); err != nil || out != w {
		t.Errorf("%v %s\n%s", err, problems, out)
	}
	for i := range 20 {
		g.once(t, fmt.Sprint("k", i))
	}
}

// TestCurlDuplicateWaitsWhereItPrefersTo instead of being told to come again.
func TestCurlDuplicateWaitsWhereItPrefersTo(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	together(t, []int{1, 2, 3, 4}, func(n int) string { return fmt.Sprint("caller ", n) }, func(t *testing.T, _, _ int) {
		r, _ := curl(t, nil, "-H", "Idempotency-Key: k", "-H", "Prefer: wait=30", "-d", "a=1", p.url+"/delay/1")
		if seen := g.once(t, "k"); r.err != nil || r.status != 200 || r.body != seen.answer {
			t.Errorf("%+v", r)
		}
	})
}

// TestClientThatPipelinesIsAnsweredInOrder: a raw connection on which requests
// are written before the earlier ones are answered.
func TestClientThatPipelinesIsAnsweredInOrder(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	keyed := func(key, body string) string {
		return fmt.Sprintf("POST /anything HTTP/1.1\r\nHost: a\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
	}
	requests := []struct{ text, want string }{
		{keyed("k1", "x"), "200 "},
		{keyed("k2", "y"), "200 "},
		{keyed("k1", "x"), "200 true"},
		{"GET /get HTTP/1.1\r\nHost: a\r\n\r\n", "200 "},
		{keyed("k2", "z"), "422 "},
		{"POST /anything HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", "400 "},
		{"POST /anything HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n1\r\ny\r\n0\r\n\r\n", "200 "},
		{keyed("k3", "xy"), "200 true"},
		{"HEAD /get HTTP/1.1\r\nHost: a\r\n\r\n", "200 "},
		{keyed("k1", "x"), "200 true"},
	}
	var all strings.Builder
	for _, r := range requests {
		all.WriteString(r.text)
	}
	if _, err := c.Write([]byte(all.String())); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for i, r := range requests {
		method, _, _ := strings.Cut(r.text, " ")
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("answer %d: %v", i+1, err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); method != "HEAD" && err != nil {
			t.Errorf("answer %d: %v", i+1, err)
		}
		resp.Body.Close() // reads it to its end
		if got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Idempotent-Replayed")); got != r.want {
			t.Errorf("answer %d is %s, want %s", i+1, got, r.want)
		}
	}
	for _, key := range []string{"k1", "k2", "k3"} {
		g.once(t, key)
	}
}

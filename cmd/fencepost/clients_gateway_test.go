package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// gateway is a hop in front of a real server. It counts the requests that arrive
// and those that took effect at the server, by key, and loses answers where a
// test asks for it.
type gateway struct {
	*httptest.Server
	t      *testing.T
	server string
	// name tells what a request is counted under: its Idempotency-Key, by default.
	name   func(*http.Request) string
	mu     sync.Mutex
	passed map[string]*passage
	faults map[string]fault
}

// passage is what went through the gateway under one key.
type passage struct {
	attempts, effects int
	request           [sha256.Size]byte // of the last body
	answer            string            // the last body
	header            http.Header       // of the last request
	method, host, uri string            // of the last request
}

// gatewayHop is one request on its way.
type gatewayHop struct {
	w http.ResponseWriter
	r *http.Request
	n int // the number of this attempt
	// forward lets the request take effect and returns the whole answer.
	forward func() (*http.Response, []byte)
}

// fault handles a request in place of the gateway.
type fault func(*gatewayHop)

func newGateway(t *testing.T, server string) *gateway {
	g := &gateway{t: t, server: server, name: func(r *http.Request) string { return r.Header.Get("Idempotency-Key") }, passed: map[string]*passage{}, faults: map[string]fault{}}
	g.Server = httptest.NewServer(g)
	t.Cleanup(func() { g.CloseClientConnections(); g.Close() })
	return g
}

// loses makes the gateway treat a key by f.
func (g *gateway) loses(key string, f fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults[key] = f
}

// of returns what went through under a key.
func (g *gateway) of(key string) passage {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.passed[key]; p != nil {
		return *p
	}
	return passage{}
}

// keys returns every key that went through.
func (g *gateway) keys() (keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k := range g.passed {
		keys = append(keys, k)
	}
	return keys
}

// once fails the test unless a key made one attempt and one effect.
func (g *gateway) once(t *testing.T, key string) passage {
	t.Helper()
	p := g.of(key)
	if p.attempts != 1 || p.effects != 1 {
		t.Errorf("%s: %d attempts and %d effects at the gateway, want 1 and 1", key, p.attempts, p.effects)
	}
	return p
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := g.name(r)
	body, err := io.ReadAll(r.Body)
	g.mu.Lock()
	p := g.passed[key]
	if p == nil {
		p = &passage{}
		g.passed[key] = p
	}
	p.attempts++
	p.request, p.header = sha256.Sum256(body), r.Header
	p.method, p.host, p.uri = r.Method, r.Host, r.RequestURI
	n, f := p.attempts, g.faults[key]
	g.mu.Unlock()
	if err != nil {
		return
	}
	send := func() *http.Response {
		// Not the request's context: an effect does not stop because the caller left.
		out, _ := http.NewRequest(r.Method, g.server+r.URL.RequestURI(), struct{ io.Reader }{bytes.NewReader(body)})
		out.Header, out.ContentLength = r.Header, int64(len(body))
		if len(body) == 0 {
			out.Body = http.NoBody
		}
		resp, err := gatewayTransport.RoundTrip(out)
		if err != nil {
			g.t.Errorf("the server behind the gateway does not answer: %v", err)
			panic(http.ErrAbortHandler)
		}
		g.mu.Lock()
		p.effects++
		g.mu.Unlock()
		return resp
	}
	if f != nil {
		f(&gatewayHop{w, r, n, func() (*http.Response, []byte) {
			resp := send()
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return resp, b
		}})
		return
	}
	resp := send()
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	var answer bytes.Buffer
	for buf := make([]byte, 32<<10); err == nil; {
		var n int
		n, err = resp.Body.Read(buf)
		answer.Write(buf[:n])
		w.Write(buf[:n])
		if resp.ContentLength < 0 {
			http.NewResponseController(w).Flush()
		}
	}
	g.mu.Lock()
	p.answer = answer.String()
	g.mu.Unlock()
}

var gatewayTransport = &http.Transport{DisableCompression: true, DisableKeepAlives: true}

// conn takes the connection from net/http, to do to it what it would not.
func (h *gatewayHop) conn() *net.TCPConn {
	c, _, err := http.NewResponseController(h.w).Hijack()
	if err != nil {
		panic(err)
	}
	return c.(*net.TCPConn)
}

// The ways in which an answer gets lost after the effect.
var losses = []struct {
	name  string
	fault fault
}{
	{"the connection is closed", func(h *gatewayHop) { h.forward(); h.conn().Close() }},
	{"the connection is reset", func(h *gatewayHop) {
		h.forward()
		c := h.conn()
		c.SetLinger(0)
		c.Close()
	}},
	{"half an answer", func(h *gatewayHop) {
		resp, b := h.forward()
		c := h.conn()
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", resp.Status, len(b), b[:len(b)/2])
		c.Close()
	}},
	{"half a chunked answer", func(h *gatewayHop) {
		resp, b := h.forward()
		c := h.conn()
		fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", resp.Status, len(b)/2, b[:len(b)/2])
		c.Close()
	}},
	{"half a stream", func(h *gatewayHop) {
		h.forward()
		c := h.conn()
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
		c.Close()
	}},
	{"a bad gateway", func(h *gatewayHop) {
		h.forward()
		http.Error(h.w, "bad gateway", http.StatusBadGateway)
	}},
	{"no answer", func(h *gatewayHop) { h.forward(); <-h.r.Context().Done() }},
}

// frontOf starts Fencepost before a gateway. more is added to its route.
func frontOf(t *testing.T, g *gateway, more string, flags ...string) *process {
	t.Helper()
	return frontWith(t, nil, frontFile(t, g, more), flags...)
}

func frontWith(t *testing.T, env []string, file string, flags ...string) *process {
	t.Helper()
	return launch(t, env, append([]string{"serve", "--config", file}, flags...)...)
}

func frontFile(t *testing.T, g *gateway, more string) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nledger: {url: 'sqlite://%s/l.db'}\nroutes: [{name: all, upstream: '%s', limits: {response: 8MiB}%s}]\n", dir, g.URL, more)
	name := filepath.Join(dir, "fencepost.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

package upstream

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// onTheWire returns the bytes that a request becomes on HTTP/1.1.
func onTheWire(t *testing.T, req *http.Request) string {
	t.Helper()
	near, far := net.Pipe()
	pool := New(Options{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }})
	defer pool.Close()
	conn, err := pool.Connect(t.Context(), "http", req.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	var wire bytes.Buffer
	go func() {
		got, err := http.ReadRequest(bufio.NewReader(io.TeeReader(far, &wire)))
		if err == nil {
			io.Copy(io.Discard, got.Body)
		}
		io.WriteString(far, "HTTP/1.1 204 No Content\r\n\r\n")
	}()
	if status, _ := exchangeOn(t, conn, req); status != 204 {
		t.Fatalf("status %d", status)
	}
	return wire.String()
}

func TestAnEmptyPostSaysContentLength0(t *testing.T) {
	for name, body := range map[string]io.Reader{"nil": nil, "NoBody": http.NoBody, "an empty reader": strings.NewReader("")} {
		req, err := http.NewRequest("POST", "http://upstream.test/v1/charges", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		got := onTheWire(t, req)
		if !strings.Contains(got, "\r\nContent-Length: 0\r\n") || strings.Contains(got, "Transfer-Encoding") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWhatIsSentIsWhatWasGivenLessExpect(t *testing.T) {
	req, err := http.NewRequest("POST", "http://upstream.test/v1/charges?b=1&a=%2F", strings.NewReader("amount=100"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Idempotency-Key": {"k"}, "User-Agent": {"agent"},
		"Expect": {"100-continue"}, "expect": {"100-continue"}, "EXPECT": {"100-continue"},
	}
	want := "POST /v1/charges?b=1&a=%2F HTTP/1.1\r\nHost: upstream.test\r\nUser-Agent: agent\r\n" +
		"Content-Length: 10\r\nIdempotency-Key: k\r\n\r\namount=100"
	if got := onTheWire(t, req); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if req.GetBody != nil {
		t.Error("GetBody is still set")
	}
}

func TestHTTP2SendsNoExpectEither(t *testing.T) {
	for _, s := range []speech{plain2, secure2} {
		got := make(chan http.Header, 1)
		p := newPeer(t, s, func(p *peer) {
			p.act = func(x *exchange) { got <- x.req.Header; x.respond(200, "", "") }
		})
		pool := New(s.options())
		defer pool.Close()
		req := p.request("k", "x")
		req.Header.Set("Expect", "100-continue")
		exchangeOn(t, connect(t, pool, p), req)
		if h := <-got; h.Get("Expect") != "" || h.Get("Accept-Encoding") != "" || keyOf(h) != "k" {
			t.Errorf("%s: %v", s.name, h)
		}
	}
}

func TestTheAnswerIsPassedOnAsItCame(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, func(p *peer) {
			p.act = func(x *exchange) { x.respond(200, "Content-Encoding: gzip\n", "not really gzip") }
		})
		pool := New(s.options())
		defer pool.Close()
		req := p.request("k", "x")
		resp, err := connect(t, pool, p).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("Content-Encoding") != "gzip" || resp.Uncompressed {
			t.Errorf("the encoding was undone: %v", resp.Header)
		}
		if (resp.TLS != nil) != s.tls {
			t.Errorf("TLS state: %v", resp.TLS != nil)
		}
		if resp.Request != req {
			t.Error("Request is another one")
		}
		if got := readAll(t, resp); got != "not really gzip" {
			t.Errorf("body %q", got)
		}
	})
}

func TestNoProxyVariableIsRead(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	dialed := ""
	pool := New(Options{DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		dialed = addr
		return nil, io.EOF
	}})
	pool.Connect(t.Context(), "http", "upstream.test")
	if dialed != "upstream.test:80" {
		t.Errorf("dialed %q", dialed)
	}
}

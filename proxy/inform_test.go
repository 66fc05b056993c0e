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

	"fencepost/policy"
)

// TestInformationalAnswersPassAtOnce: an early hint reaches the client while the
// final answer is still being made, and only the final one is recorded.
func TestInformationalAnswersPassAtOnce(t *testing.T) {
	go1 := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.Header().Set("Fencepost-State", "completed")
		w.WriteHeader(http.StatusEarlyHints)
		<-go1
		w.Header().Del("Link")
		w.WriteHeader(201)
	})
	r := start(t, p.URL, nil, nil)
	for _, method := range []string{"GET", "POST"} {
		c := r.dial(method + " /v1/charges HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
		c.SetDeadline(time.Now().Add(10 * time.Second))
		answers := bufio.NewReader(c)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil || resp.StatusCode != 103 || resp.Header.Get("Link") == "" || resp.Header.Get("Fencepost-State") != "" {
			t.Fatalf("%s: %v %v", method, resp, err)
		}
		go1 <- struct{}{}
		resp, err = http.ReadResponse(answers, nil)
		if err != nil || resp.StatusCode != 201 || resp.Header.Get("Link") != "" {
			t.Fatalf("%s: %v %v", method, resp, err)
		}
	}
	g := r.call("POST", "/v1/charges", "", "Idempotency-Key", "k")
	if g.ok(t, 201); g.header.Get("Link") != "" || g.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("replay: %v", g.header)
	}
	p.counted("k", 2) // the GET counts too: it brings the key
}

// TestEndlessInformationalAnswersEnd: an upstream that hints for ever meets the
// route's time limit like any other that does not answer.
func TestEndlessInformationalAnswersEnd(t *testing.T) {
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
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					return
				}
				for {
					if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
						return
					}
				}
			}()
		}
	}()
	r := start(t, "http://"+l.Addr().String(), func(r *policy.Route) { r.Timeout = 300 * time.Millisecond }, nil)
	r.post("k", "x").is(t, 504, codeUnknown, retryAfterResolution)
}

// TestAClientThatEndedItsSideGetsItsAnswer: a half-closed connection is one that
// still reads.
func TestAClientThatEndedItsSideGetsItsAnswer(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
			fmt.Fprint(w, "the answer")
		case <-r.Context().Done():
		}
	})
	r := start(t, p.URL, nil, nil)
	for _, method := range []string{"GET", "POST", "DELETE"} {
		c := r.dial(method + " /v1/charges HTTP/1.1\r\nHost: x\r\nIdempotency-Key: " + method + "\r\nContent-Length: 0\r\n\r\n")
		c.SetDeadline(time.Now().Add(10 * time.Second))
		c.(*net.TCPConn).CloseWrite()
		p.await(method)
		// Long enough for the end of the client's side to be noticed; too short, and
		// the test shows nothing, but does not fail.
		time.Sleep(50 * time.Millisecond)
		release <- struct{}{}
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") || !strings.Contains(string(answer), "the answer") {
			t.Errorf("%s: %v %q", method, err, answer)
		}
	}
}

// TestAClientThatLeftDoesNotHoldAPassedRequestForEver: the patience has an end.
func TestAClientThatLeftDoesNotHoldAPassedRequestForEver(t *testing.T) {
	gone := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(gone) })
	r := start(t, p.URL, nil, func(c *Config) { c.BodyTimeout = 100 * time.Millisecond })
	c := r.dial("GET / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: g\r\n\r\n")
	p.await("g")
	c.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the upstream still works for nobody")
	}
}

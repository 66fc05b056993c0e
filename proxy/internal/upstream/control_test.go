package upstream

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// net/http's Transport sends a keyed POST again when a connection that was used
// before dies without an answer. These tests show the same peer to both: that the
// counting sees a second delivery where there is one, and that a Pool has none.

// stale is a peer that answers warm requests, and closes on any other.
func stale(t *testing.T, s speech) *peer {
	return newPeer(t, s, func(p *peer) { p.act = func(x *exchange) { x.close() } })
}

func TestControlTheTransportDeliversOneRequestToFiveStaleConnections(t *testing.T) {
	for _, s := range []speech{plain1, secure1} {
		t.Run(s.name, func(t *testing.T) {
			p := stale(t, s)
			transport := &http.Transport{MaxIdleConnsPerHost: 10, TLSClientConfig: s.options().TLS}
			defer transport.CloseIdleConnections()
			var answers []*http.Response
			for range 5 {
				resp, err := transport.RoundTrip(p.request("warm", "x"))
				if err != nil {
					t.Fatal(err)
				}
				answers = append(answers, resp)
			}
			for _, resp := range answers {
				readAll(t, resp)
			}
			if _, err := transport.RoundTrip(p.request("k", "amount=100")); err == nil {
				t.Error("no error")
			}
			p.stop()
			if n := p.deliveries("k"); n < 2 {
				t.Errorf("delivered %d times: these tests cannot see a second delivery", n)
			}
		})
	}
}

func TestOneRequestMeetsOneOfFiveStaleConnections(t *testing.T) {
	for _, s := range []speech{plain1, secure1} {
		for _, body := range []string{"amount=100", ""} {
			t.Run(s.name+"/"+either(body != "", "body", "empty"), func(t *testing.T) {
				p := stale(t, s)
				pool := New(s.options())
				defer pool.Close()
				warm(t, pool, p, 5)
				_, err := connect(t, pool, p).RoundTrip(p.request("k", body))
				if e := sendError(t, err); e.NotSent {
					t.Errorf("called not sent: %v", e)
				}
				if got := pool.Stats(); got != (Stats{Idle: 4}) {
					t.Errorf("%+v, want the other four untouched", got)
				}
				p.finallyDelivered(t, "k", 1)
				if n := p.connections(); n != 5 {
					t.Errorf("%d connections, want five", n)
				}
			})
		}
	}
}

// protests is a peer that answers the first request with PROTOCOL_ERROR, which
// promises nothing about what it did with it.
func protests(t *testing.T) *peer {
	var before atomic.Bool
	return newPeer(t, secure2, func(p *peer) {
		p.act = func(x *exchange) {
			if before.Swap(true) {
				x.respond(200, "", "ok")
			} else {
				x.muxed.rst(x.stream, codeProtocol)
			}
		}
	})
}

func TestControlTheTransportSendsAgainAfterProtocolError(t *testing.T) {
	p := protests(t)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: p.speech.options().TLS}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(p.request("k", "amount=100"))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, resp)
	p.stop()
	if n := p.deliveries("k"); n < 2 {
		t.Errorf("delivered %d times: these tests cannot see a second delivery", n)
	}
}

func TestProtocolErrorIsNotAReasonToSendAgain(t *testing.T) {
	p := protests(t)
	pool := New(p.speech.options())
	defer pool.Close()
	_, err := connect(t, pool, p).RoundTrip(p.request("k", "amount=100"))
	if e := sendError(t, err); e.NotSent {
		t.Errorf("called not sent: %v", e)
	}
	p.finallyDelivered(t, "k", 1)
}

// The control of TestAnAnswerInTheMiddleOfABodyIsAnAnswer and its like: http.Client
// follows 308 with a second POST.
func TestControlTheClientPostsAgainAfter308(t *testing.T) {
	p := newPeer(t, plain1, nil)
	var before atomic.Bool
	p.act = func(x *exchange) {
		if before.Swap(true) {
			x.respond(200, "", "ok")
		} else {
			redirect(308)(x)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(p.request("k", "amount=100"))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	p.finallyDelivered(t, "k", 2)
}

package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// doubt is what a lookup and the answer to a retry have to say where an answer
// was lost: nobody may take it for success, and nobody may send again.
func doubt(t *testing.T, p *process, key string, r reply) {
	t.Helper()
	if s := p.state(key); s != "unknown" {
		t.Errorf("it reads %s", s)
	}
	if r.status != 409 || r.code() != "outcome_unknown" || !strings.Contains(r.body, `"retry":"after_resolution"`) {
		t.Errorf("the client ended with %+v", r)
	}
}

// TestEachClientWithRetriesIsToldOfALostAnswer: one effect, however often the
// client asks, and an answer that tells what is the matter.
func TestEachClientWithRetriesIsToldOfALostAnswer(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, ", timeout: 1s")
	eachClient(t, func(t *testing.T, i int, cl realClient) {
		var calls []clientCall
		for n, l := range losses {
			key := fmt.Sprintf("lost-%d-%d", i, n)
			g.loses(key, l.fault)
			c := posting(p.url+"/anything", key, `{"amount":1}`)
			c.Retries = 3
			if cl.name == "curl" {
				c.Retries = 1 // its pauses grow from one second
			}
			calls = append(calls, c)
		}
		for n, r := range cl.do(t, calls...) {
			t.Run(losses[n].name, func(t *testing.T) {
				key := fmt.Sprintf("lost-%d-%d", i, n)
				g.once(t, key)
				doubt(t, p, key, r)
			})
		}
	})
}

// TestEachClientWithoutRetriesSeesALostAnswerAsAnError.
func TestEachClientWithoutRetriesSeesALostAnswerAsAnError(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, ", timeout: 1s")
	want := map[string]string{
		"no answer":     "504 outcome_unknown",
		"a bad gateway": "502 ", // the upstream's own answer, passed on
		"half a stream": "error",
	}
	eachClient(t, func(t *testing.T, i int, cl realClient) {
		var calls []clientCall
		for n, l := range losses {
			key := fmt.Sprintf("lost-%d-%d", i, n)
			g.loses(key, l.fault)
			calls = append(calls, posting(p.url+"/anything", key, `{"amount":1}`))
		}
		for n, r := range cl.do(t, calls...) {
			law := losses[n].name
			key := fmt.Sprintf("lost-%d-%d", i, n)
			g.once(t, key)
			got := fmt.Sprint(r.status, " ", r.code())
			if r.err != nil {
				got = "error"
			} else if s := r.header.Get("Fencepost-State"); s != "unknown" {
				t.Errorf("%s: Fencepost-State: %q", law, s)
			}
			if w := want[law]; got != w && (w != "" || got != "502 outcome_unknown") {
				t.Errorf("%s: %s %v", law, got, r.err)
			}
		}
	})
}

// TestCurlRetriesALostAnswerAndEndsWithAnExitCode, where it is asked to fail.
func TestCurlRetriesALostAnswerAndEndsWithAnExitCode(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	type row struct {
		law     string
		flags   []string
		exit    string
		retries int // that curl makes: a 409 is final to it unless it has to fail
	}
	together(t, []row{
		{"plain", nil, "<nil>", 1},
		{"fail", []string{"--fail-with-body"}, "exit status 22", 3},
	}, func(c row) string { return c.law }, func(t *testing.T, _ int, c row) {
		g.loses(c.law, losses[0].fault)
		args := append([]string{"--retry", "3", "--retry-all-errors", "--retry-delay", "0", "-H", "Idempotency-Key: " + c.law, "-d", "a=1", p.url + "/anything"}, c.flags...)
		r, verbose := curl(t, nil, args...)
		if got := fmt.Sprint(r.err); got != c.exit {
			t.Errorf("curl ended with %s, want %s", got, c.exit)
		}
		if n := strings.Count(verbose, "> POST /anything"); n != 1+c.retries {
			t.Errorf("curl sent %d requests, want %d\n%s", n, 1+c.retries, verbose)
		}
		g.once(t, c.law)
		doubt(t, p, c.law, r)
	})
}

// restarts are the places where a proxy is killed while a client waits, and what its retry
// then ends with.
var restarts = []struct {
	law    string
	at     string // a failpoint, or "" for the moment after the effect
	status int
	state  string
}{
	{"killed before the send, the retry is the send", "mark.before", 200, "completed"},
	{"killed after the effect, the retry is told of the doubt", "", 409, "unknown"},
	{"killed after the record, the retry is a replay", "record.after", 200, "completed"},
}

// killed starts a proxy, has do call it and restarts it on the same address when
// it was killed on the way.
func killed(t *testing.T, g *gateway, at, key string, do func(url string)) *process {
	t.Helper()
	file, addr := frontFile(t, g, ""), freeAddress(t)
	var env []string
	if at != "" {
		env = []string{"FENCEPOST_FAILPOINT=" + at + "=kill"}
	}
	p := frontWith(t, env, file, "--listen", addr)
	if at == "" {
		g.loses(key, func(h *gatewayHop) {
			h.forward()
			p.signal(syscall.SIGKILL)
			<-p.done
		})
	}
	again, over := make(chan *process, 1), make(chan struct{})
	go func() {
		defer close(again)
		select {
		case <-p.done:
			again <- frontWith(t, nil, file, "--listen", addr)
		case <-over:
		}
	}()
	defer func() { // also where do ends the test
		close(over)
		for range again {
		}
	}()
	do("http://" + addr)
	select {
	case <-p.done:
	default:
		t.Error("the proxy was not killed")
		p.signal(syscall.SIGKILL)
	}
	next := <-again
	if next == nil {
		t.FailNow() // launch said why
	}
	return next
}

// TestEachClientWithRetriesOutlivesTheProxy, and there is one effect.
func TestEachClientWithRetriesOutlivesTheProxy(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	for n, s := range restarts {
		t.Run(s.law, func(t *testing.T) {
			eachClient(t, func(t *testing.T, i int, cl realClient) {
				key := fmt.Sprintf("killed-%d-%d", n, i)
				var r reply
				p := killed(t, g, s.at, key, func(url string) {
					c := posting(url+"/anything", key, `{"amount":1}`)
					c.Retries = 10
					if cl.name == "curl" {
						c.Retries = 2
					}
					// The first call is there for a connection that is kept and breaks.
					r = cl.do(t, clientCall{Method: "GET", URL: url + "/get"}, c)[1]
				})
				seen := g.once(t, key)
				if s.status == 409 {
					doubt(t, p, key, r)
				} else if r.err != nil || r.status != s.status || r.body != seen.answer {
					t.Errorf("the client ended with %+v", r)
				}
				if got := p.state(key); got != s.state {
					t.Errorf("it reads %s, want %s", got, s.state)
				}
			})
		})
	}
}

// refusing answers the first attempt with 429, without effect.
func refusing(h *gatewayHop) {
	if h.n == 1 {
		h.w.Header().Set("Retry-After", "1")
		h.w.Header().Set("Stripe-Should-Retry", "true")
		http.Error(h.w, `{"error":{"type":"rate_limit"}}`, http.StatusTooManyRequests)
		return
	}
	resp, b := h.forward()
	h.w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	h.w.WriteHeader(resp.StatusCode)
	h.w.Write(b)
}

// TestEachClientWithRetriesGetsPastARateLimit: a 429 is no outcome, so the retry
// is sent.
func TestEachClientWithRetriesGetsPastARateLimit(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	eachClient(t, func(t *testing.T, i int, cl realClient) {
		key := fmt.Sprint("limited-", i)
		g.loses(key, refusing)
		c := posting(p.url+"/anything", key, `{"amount":1}`)
		c.Retries = 3
		again := posting(p.url+"/anything", key, `{"amount":1}`)
		r := cl.do(t, c, again)
		if r[0].err != nil || r[0].status != 200 || r[0].header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%+v", r[0])
		}
		if r[1].status != 200 || r[1].body != r[0].body || r[1].header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%+v", r[1])
		}
		if seen := g.of(key); seen.attempts != 2 || seen.effects != 1 {
			t.Errorf("%d attempts and %d effects, want 2 and 1", seen.attempts, seen.effects)
		}
	})
}

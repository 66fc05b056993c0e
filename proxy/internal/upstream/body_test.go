package upstream

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// upload is a request with a body of 1 MiB of which the second half never comes.
func upload(p *peer, key string) (*http.Request, *io.PipeWriter) {
	r, w := io.Pipe()
	req := p.request(key, "x")
	req.Body = r
	req.ContentLength = 1 << 20
	go w.Write(bytes.Repeat([]byte("x"), 1<<19))
	return req, w
}

func TestAPeerThatLeavesInTheMiddleOfABodyLeavesDoubt(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		for how, end := range map[string]func(*line){"close": (*line).close, "RST": (*line).reset} {
			t.Run(how, func(t *testing.T) {
				p := newPeer(t, s, func(p *peer) {
					p.head = func(x *exchange) bool { x.in.ReadByte(); end(x.line); return false }
				})
				pool := New(s.options())
				defer pool.Close()
				req := p.request("k", "x")
				req.ContentLength = 64 << 20
				req.Body = io.NopCloser(io.LimitReader(zeros{}, req.ContentLength))
				_, err := connect(t, pool, p).RoundTrip(req)
				if e := sendError(t, err); e.NotSent {
					t.Errorf("called not sent: %v", e)
				}
				p.finallyDelivered(t, "k", 0)
			})
		}
	})
}

func TestAnAnswerInTheMiddleOfABodyIsAnAnswer(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, func(p *peer) {
			p.head = func(x *exchange) bool { x.respond(413, "", "too large"); return true }
		})
		pool := New(s.options())
		defer pool.Close()
		req, w := upload(p, "k")
		defer w.Close()
		if got, body := exchangeOn(t, connect(t, pool, p), req); got != 413 || body != "too large" {
			t.Errorf("%d %q", got, body)
		}
		// On HTTP/1.1 half a body is in the way of the next request.
		if !s.mux {
			eventually(t, "the connection is dropped", func() bool { return pool.Stats() == Stats{} })
		}
	})
}

func TestARefusalInTheMiddleOfABodyIsNotSent(t *testing.T) {
	for _, s := range []speech{plain2, secure2} {
		t.Run(s.name, func(t *testing.T) {
			p := newPeer(t, s, func(p *peer) {
				p.head = func(x *exchange) bool { x.muxed.rst(x.stream, codeRefusedStream); return false }
			})
			pool := New(s.options())
			defer pool.Close()
			req, w := upload(p, "k")
			defer w.Close()
			_, err := connect(t, pool, p).RoundTrip(req)
			if e := sendError(t, err); !e.NotSent {
				t.Errorf("in doubt: %v", e)
			}
		})
	}
}

func TestABodyThatCannotBeReadLeavesDoubtOnceItsHeaderHasLeft(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		p := newPeer(t, s, nil)
		pool := New(s.options())
		defer pool.Close()
		wrong := errors.New("disk error")
		req := p.request("k", "x")
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{wrong}))
		req.ContentLength = 8
		_, err := connect(t, pool, p).RoundTrip(req)
		if e := sendError(t, err); e.NotSent || !errors.Is(e, wrong) {
			t.Errorf("NotSent %v: %v", e.NotSent, e)
		}
		p.finallyDelivered(t, "k", 0)
	})
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

func TestALargeBodyArrivesWhole(t *testing.T) {
	inEverySpeech(t, func(t *testing.T, s speech) {
		var got int64
		p := newPeer(t, s, nil)
		if !s.mux {
			p.head = func(x *exchange) bool {
				n, _ := io.Copy(io.Discard, x.req.Body)
				got = n
				return true
			}
		}
		pool := New(s.options())
		defer pool.Close()
		status, _ := exchangeOn(t, connect(t, pool, p), p.request("k", strings.Repeat("x", 1<<20)))
		p.stop()
		if status != 200 || p.deliveries("k") != 1 || !s.mux && got != 1<<20 {
			t.Errorf("status %d, delivered %d times, %d bytes", status, p.deliveries("k"), got)
		}
	})
}

func TestWhichAnswersLeaveTheConnectionUsable(t *testing.T) {
	for _, s := range []speech{plain1, secure1} {
		for _, c := range []struct {
			name   string
			method string
			act    func(*exchange)
			read   bool
			usable bool
		}{
			{"read to the end", "POST", func(x *exchange) { x.respond(200, "", "ok") }, true, true},
			{"no body", "POST", func(x *exchange) { x.respond(200, "", "") }, false, true},
			{"204", "POST", func(x *exchange) { io.WriteString(x.conn, "HTTP/1.1 204 No Content\r\n\r\n") }, false, true},
			{"HEAD", "HEAD", func(x *exchange) { io.WriteString(x.conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n") }, false, true},
			{"chunked", "POST", func(x *exchange) {
				io.WriteString(x.conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
			}, true, true},
			{"interim answer before", "POST", func(x *exchange) {
				io.WriteString(x.conn, "HTTP/1.1 103 Early Hints\r\n\r\n")
				x.respond(200, "", "ok")
			}, true, true},
			{"closed before the end", "POST", func(x *exchange) { x.respond(200, "", "ok") }, false, false},
			{"Connection: close", "POST", func(x *exchange) { x.respond(200, "Connection: close\n", "ok") }, true, false},
			{"Connection: close, no body", "POST", func(x *exchange) { x.respond(200, "Connection: close\n", "") }, true, false},
			{"HTTP/1.0", "POST", func(x *exchange) { io.WriteString(x.conn, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok") }, true, false},
			{"cut short", "POST", func(x *exchange) { x.respondHalf(); x.close() }, true, false},
			{"up to the close", "POST", func(x *exchange) { io.WriteString(x.conn, "HTTP/1.1 200 OK\r\n\r\nok"); x.close() }, true, false},
			{"bytes left over", "POST", func(x *exchange) {
				io.WriteString(x.conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
			}, true, false},
			{"bytes left over, no body", "POST", func(x *exchange) {
				io.WriteString(x.conn, "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
			}, true, false},
			{"it will close soon", "POST", func(x *exchange) { x.respond(200, "Keep-Alive: timeout=0\n", "ok") }, true, false},
		} {
			t.Run(s.name+"/"+c.name, func(t *testing.T) {
				quietLog(t)
				p := newPeer(t, s, func(p *peer) { p.act = c.act })
				pool := New(s.options())
				defer pool.Close()
				req := p.request("k", "")
				req.Method = c.method
				resp, err := connect(t, pool, p).RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if c.read {
					io.Copy(io.Discard, resp.Body)
				}
				resp.Body.Close()

				conn := connect(t, pool, p)
				if conn.Reused() != c.usable {
					t.Errorf("the next connection is reused: %v, want %v", conn.Reused(), c.usable)
				}
				if _, body := exchangeOn(t, conn, p.request("warm", "x")); body != "warm" {
					t.Errorf("the next answer is %q", body)
				}
			})
		}
	}
}

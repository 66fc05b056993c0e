package upstream

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptrace"
	"sync"
	"testing"
)

const stray = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"

// quietLog silences net/http, which logs stray bytes.
func quietLog(t *testing.T) {
	before := log.Writer()
	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(before) })
}

func TestBytesThatNoRequestAskedForEndAnIdleConnection(t *testing.T) {
	for _, s := range []speech{plain1, secure1} {
		t.Run(s.name, func(t *testing.T) {
			p := newPeer(t, s, nil)
			pool := New(s.options())
			defer pool.Close()
			warm(t, pool, p, 1)
			p.everyLine(t, 1, func(l *line) { io.WriteString(l.conn, stray) })
			eventually(t, "the connection is dropped", func() bool { return pool.Stats() == Stats{} })
		})
	}
}

func TestBytesThatArriveInTheGapAreNotTheAnswer(t *testing.T) {
	for _, s := range []speech{plain1, secure1} {
		for _, reused := range []bool{false, true} {
			t.Run(s.name+"/"+either(reused, "reused", "fresh"), func(t *testing.T) {
				p := newPeer(t, s, nil)
				pool := New(s.options())
				defer pool.Close()
				if reused {
					warm(t, pool, p, 1)
				}
				conn := connect(t, pool, p)
				p.everyLine(t, 1, func(l *line) { io.WriteString(l.conn, stray) })
				eventually(t, "they are noticed", conn.link.wire.ended.Load)
				_, err := conn.RoundTrip(p.request("k", "x"))
				if e := sendError(t, err); !e.NotSent {
					t.Errorf("in doubt: %v", e)
				}
				p.finallyDelivered(t, "k", 0)
			})
		}
	}
}

// The same when RoundTrip has begun, and has written nothing yet: net/http alone
// takes the bytes for the answer.
func TestBytesThatArriveBeforeTheFirstWriteAreNotTheAnswer(t *testing.T) {
	for _, s := range []speech{plain1, secure1} {
		for _, reused := range []bool{false, true} {
			t.Run(s.name+"/"+either(reused, "reused", "fresh"), func(t *testing.T) {
				p := newPeer(t, s, nil)
				pool := New(s.options())
				defer pool.Close()
				if reused {
					warm(t, pool, p, 1)
				}
				conn := connect(t, pool, p)
				var once sync.Once
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					// Called while the request is put into net/http's buffer.
					WroteHeaderField: func(string, []string) {
						once.Do(func() {
							p.everyLine(t, 1, func(l *line) { io.WriteString(l.conn, stray) })
							eventually(t, "they are noticed", conn.link.wire.ended.Load)
						})
					},
				})
				_, err := conn.RoundTrip(p.request("k", "x").WithContext(ctx))
				if e := sendError(t, err); !e.NotSent {
					t.Errorf("in doubt: %v", e)
				}
				p.finallyDelivered(t, "k", 0)
			})
		}
	}
}

// A server that sheds load before it reads: its 503 answers no request of ours.
func TestAPeerThatSpeaksFirstHasNotAnswered(t *testing.T) {
	p := newPeer(t, plain1, func(p *peer) {
		p.greet = func(c net.Conn) { io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n") }
	})
	pool := New(p.speech.options())
	defer pool.Close()
	conn, err := pool.Connect(t.Context(), "http", p.addr)
	if err == nil {
		eventually(t, "it is noticed", conn.link.wire.ended.Load)
		_, err = conn.RoundTrip(p.request("k", "x"))
		if e := sendError(t, err); !e.NotSent {
			t.Errorf("in doubt: %v", e)
		}
	}
	p.finallyDelivered(t, "k", 0)
}

// The same, as a race: every request gets its own answer, or none.
func TestAnAnswerIsNeverAnothersUnderPoisoning(t *testing.T) {
	quietLog(t)
	for _, s := range []speech{plain1, secure1} {
		t.Run(s.name, func(t *testing.T) {
			p := newPeer(t, s, func(p *peer) {
				p.act = func(x *exchange) {
					fmt.Fprintf(x.conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", len(x.key), x.key, stray)
				}
			})
			pool := New(s.options())
			defer pool.Close()
			for i := range 200 {
				key := fmt.Sprint("k", i)
				if _, body := exchangeOn(t, connect(t, pool, p), p.request(key, "x")); body != key {
					t.Fatalf("the answer to %s is %q", key, body)
				}
			}
		})
	}
}

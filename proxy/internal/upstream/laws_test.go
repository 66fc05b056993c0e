package upstream

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The verdicts on one request.
const (
	answered = "answered"
	doubt    = "in doubt"
	notSent  = "not sent"
)

// A law says what a request comes to when its peer behaves in a certain way.
type law struct {
	name string

	http1, http2 bool // where it applies; neither means both

	act func(*exchange)
	// ends says how our side gives up, once the peer has the request.
	ends func(*deadline)

	want     string
	timeout  bool
	refused  bool // the peer said that it did not process what it received
	check    func(*testing.T, *http.Response)
	doubting bool // Options.DoubtRefusals
}

// once is every law in which the peer receives the whole request. The peer then
// could have executed it: so it is never "not sent", unless the peer says so.
var once = []law{
	{name: "an answer is an answer", want: answered, act: func(x *exchange) { x.respond(200, "", "ok") }},
	{name: "an answer without a body is an answer", want: answered, act: func(x *exchange) { x.respond(204, "", "") }},
	{name: "421 is an answer", want: answered, act: func(x *exchange) { x.respond(421, "", "elsewhere") }, check: status(421)},
	{name: "503 is an answer", want: answered, act: func(x *exchange) { x.respond(503, "Retry-After: 1\n", "") }, check: status(503)},
	{name: "307 is not followed", want: answered, act: redirect(307), check: status(307)},
	{name: "308 is not followed", want: answered, act: redirect(308), check: status(308)},
	{name: "an answer cut short is an answer with a broken body", want: answered, check: broken,
		act: func(x *exchange) { x.respondHalf(); x.close() }},

	{name: "close after reading", want: doubt, act: func(x *exchange) { x.close() }},
	{name: "half-close after reading", want: doubt, act: func(x *exchange) { x.halfClose() }},
	{name: "RST after reading", want: doubt, act: func(x *exchange) { x.reset() }},
	{name: "half a status line, then close", want: doubt, http1: true,
		act: func(x *exchange) { io.WriteString(x.conn, "HTTP/1.1 2"); x.close() }},
	{name: "half a header, then RST", want: doubt, http1: true,
		act: func(x *exchange) { io.WriteString(x.conn, "HTTP/1.1 200 OK\r\nContent-"); x.reset() }},
	{name: "an answer that is not HTTP", want: doubt, http1: true,
		act: func(x *exchange) { io.WriteString(x.conn, "220 mail ESMTP\r\n"); x.close() }},
	{name: "an interim answer, then close", want: doubt, http1: true,
		act: func(x *exchange) { io.WriteString(x.conn, "HTTP/1.1 103 Early Hints\r\n\r\n"); x.close() }},
	{name: "silence until the deadline", want: doubt, timeout: true, act: func(*exchange) {},
		ends: func(d *deadline) { d.pass(context.DeadlineExceeded) }},
	{name: "cancelled while waiting for the answer", want: doubt, act: func(*exchange) {},
		ends: func(d *deadline) { d.pass(context.Canceled) }},

	{name: "REFUSED_STREAM", want: notSent, refused: true, http2: true, act: rst(codeRefusedStream)},
	{name: "PROTOCOL_ERROR", want: doubt, http2: true, act: rst(codeProtocol)},
	{name: "INTERNAL_ERROR", want: doubt, http2: true, act: rst(codeInternal)},
	{name: "CANCEL", want: doubt, http2: true, act: rst(codeCancel)},
	{name: "ENHANCE_YOUR_CALM", want: doubt, http2: true, act: rst(codeEnhanceYourCalm)},
	{name: "NO_ERROR without an answer", want: doubt, http2: true, act: rst(codeNo)},
	{name: "GOAWAY below the stream", want: notSent, refused: true, http2: true,
		act: func(x *exchange) { x.muxed.goAway(below(x), codeNo) }},
	{name: "GOAWAY below the stream, with an error", want: notSent, refused: true, http2: true,
		act: func(x *exchange) { x.muxed.goAway(below(x), codeEnhanceYourCalm) }},
	{name: "GOAWAY below the stream, then close", want: notSent, refused: true, http2: true,
		act: func(x *exchange) { x.muxed.goAway(below(x), codeNo); x.close() }},
	{name: "GOAWAY for all streams, then one below", want: notSent, refused: true, http2: true,
		act: func(x *exchange) { x.muxed.goAway(1<<31-1, codeNo); x.muxed.goAway(below(x), codeNo) }},
	{name: "GOAWAY at the stream, then close", want: doubt, http2: true,
		act: func(x *exchange) { x.muxed.goAway(x.stream, codeNo); x.close() }},
	{name: "GOAWAY at the stream with an error, then close", want: doubt, http2: true,
		act: func(x *exchange) { x.muxed.goAway(x.stream, codeInternal); x.close() }},
	{name: "GOAWAY at the stream, then an answer", want: answered, http2: true,
		act: func(x *exchange) { x.muxed.goAway(x.stream, codeNo); x.respond(200, "", "ok") }},
	{name: "GOAWAY cut short, then close", want: doubt, http2: true, act: func(x *exchange) {
		x.muxed.write(frameGoAway, 0, 0, 0)
		x.close()
	}},

	{name: "REFUSED_STREAM from a doubted peer", want: doubt, doubting: true, http2: true, act: rst(codeRefusedStream)},
	{name: "GOAWAY below the stream from a doubted peer", want: doubt, doubting: true, http2: true,
		act: func(x *exchange) { x.muxed.goAway(below(x), codeNo) }},
}

func redirect(status int) func(*exchange) {
	return func(x *exchange) {
		x.respond(status, "Location: "+x.peer.speech.scheme()+"://"+x.peer.addr+"/v2\n", "")
	}
}

func rst(code uint32) func(*exchange) {
	return func(x *exchange) { x.muxed.rst(x.stream, code) }
}

// below is the last stream before the exchange's own.
func below(x *exchange) uint32 {
	if x.stream < 2 {
		return 0
	}
	return x.stream - 2
}

func status(want int) func(*testing.T, *http.Response) {
	return func(t *testing.T, resp *http.Response) {
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
}

func broken(t *testing.T, resp *http.Response) {
	if b, err := io.ReadAll(resp.Body); err == nil || string(b) != "half" {
		t.Errorf("body %q, error %v; want half of it and an error", b, err)
	}
}

func TestWhateverThePeerDoesTheRequestIsDeliveredAtMostOnceAndTheVerdictIsTrue(t *testing.T) {
	for _, s := range everySpeech {
		for _, l := range once {
			if l.http1 && s.mux || l.http2 && !s.mux {
				continue
			}
			for _, body := range []string{"amount=100", ""} {
				for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
					for _, reused := range []bool{false, true} {
						name := strings.Join([]string{s.name, l.name, either(body != "", "body", "empty"), header, either(reused, "reused", "fresh")}, "/")
						t.Run(name, func(t *testing.T) { l.hold(t, s, body, header, reused) })
					}
				}
			}
		}
	}
}

func either(which bool, yes, no string) string {
	if which {
		return yes
	}
	return no
}

func (l law) hold(t *testing.T, s speech, body, header string, reused bool) {
	received := make(chan struct{}, 10)
	p := newPeer(t, s, func(p *peer) {
		p.act = func(x *exchange) { l.act(x); received <- struct{}{} }
	})
	options := s.options()
	options.DoubtRefusals = l.doubting
	pool := New(options)
	if reused {
		warm(t, pool, p, 1)
	}

	conn := connect(t, pool, p)
	if conn.Reused() != reused {
		t.Fatalf("Reused() = %v", conn.Reused())
	}
	ctx := newDeadline()
	req := p.request("k", body).WithContext(ctx)
	req.Header.Del("Idempotency-Key")
	req.Header.Set(header, "k")
	if l.ends != nil {
		go func() { <-received; l.ends(ctx) }()
	}

	resp, err := conn.RoundTrip(req)
	verdict := answered
	if err != nil {
		e := sendError(t, err)
		verdict = either(e.NotSent, notSent, doubt)
		if e.Timeout != l.timeout {
			t.Errorf("Timeout = %v, want %v (%v)", e.Timeout, l.timeout, e)
		}
	} else {
		if l.check != nil {
			l.check(t, resp)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if verdict != l.want {
		t.Errorf("verdict %q, want %q (%v)", verdict, l.want, err)
	}

	if l.ends == nil {
		ctx.pass(context.Canceled) // after the end: it changes nothing
	}
	conn.Release() // does nothing after RoundTrip
	pool.Close()
	eventually(t, "the pool is empty", func() bool { return pool.Stats() == Stats{} })
	p.stop()
	if n := p.deliveries("k"); n != 1 {
		t.Errorf("delivered %d times, want once", n)
	}
	if n := p.connections(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	if verdict == notSent && !l.refused {
		t.Error("called not sent, though the peer had it and did not refuse it")
	}
}

// A deadline is a context that ends when a test says so, not when a clock does.
type deadline struct {
	context.Context
	done chan struct{}
	err  error
}

func newDeadline() *deadline {
	return &deadline{Context: context.Background(), done: make(chan struct{})}
}

func (d *deadline) pass(err error) { d.err = err; close(d.done) }

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Deadline() (time.Time, bool) { return time.Time{}, false }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

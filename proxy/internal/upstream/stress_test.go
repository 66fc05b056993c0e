package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestUnderRandomFailureEveryDeliveryIsSingleAndEveryVerdictIsTrue sends thousands
// of keyed POSTs to peers that break connections at random points: on accept, in
// the TLS handshake, between requests, in a body, after the request, in the answer,
// and from outside at any time. Callers give up at random times too.
func TestUnderRandomFailureEveryDeliveryIsSingleAndEveryVerdictIsTrue(t *testing.T) {
	requests, callers := 2000, 16
	if testing.Short() {
		requests = 500
	}
	inEverySpeech(t, func(t *testing.T, s speech) {
		quietLog(t)
		var mu sync.Mutex
		refusedBy := make(map[string]bool) // keys that the peer said it did not process
		refuse := func(x *exchange) {
			mu.Lock()
			refusedBy[x.key] = true
			mu.Unlock()
		}
		p := newPeer(t, s, func(p *peer) {
			p.streams = 50
			p.act = func(x *exchange) { chaos(x, refuse) }
			p.head = func(x *exchange) bool {
				if rand.IntN(60) == 0 {
					x.reset()
					return false
				}
				return true
			}
		})

		// Somebody pulls cables.
		done := make(chan struct{})
		var outside sync.WaitGroup
		outside.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond):
				}
				n := rand.IntN(4) // a map's order is random
				p.each(func(l *line) {
					if n--; n == 0 {
						[]func(*line){(*line).reset, (*line).halfRaw, (*line).closeRaw}[rand.IntN(3)](l)
					}
				})
			}
		})

		pool := New(s.options())
		verdicts := make(map[string]string)
		var running sync.WaitGroup
		for c := range callers {
			running.Go(func() {
				for i := range requests / callers {
					key := fmt.Sprintf("k-%d-%d", c, i)
					verdict := attempt(t, pool, p, key)
					mu.Lock()
					verdicts[key] = verdict
					mu.Unlock()
				}
			})
		}
		running.Wait()
		close(done)
		outside.Wait()
		pool.Close()
		eventually(t, "the pool is empty", func() bool { return pool.Stats() == Stats{} })
		p.stop()

		count := make(map[string]int)
		executed := make(map[string]int) // of these, delivered
		for key, verdict := range verdicts {
			n := p.deliveries(key)
			count[verdict]++
			executed[verdict] += n
			switch {
			case n > 1:
				t.Errorf("%s was delivered %d times (%s)", key, n, verdict)
			case verdict == notSent && n > 0 && !refusedBy[key]:
				t.Errorf("%s was called not sent, and delivered", key)
			case verdict == noConnection && n > 0:
				t.Errorf("%s had no connection, and was delivered", key)
			case verdict == answered && n != 1:
				t.Errorf("%s was answered, and not delivered", key)
			}
		}
		t.Logf("%d requests: %v, of these delivered: %v; %d connections", len(verdicts), count, executed, p.connections())
		for _, verdict := range []string{answered, doubt, notSent} {
			if count[verdict] == 0 {
				t.Errorf("no request ended %q: the test tests too little", verdict)
			}
		}
	})
}

const noConnection = "no connection"

// attempt sends one request, once, and returns its verdict.
func attempt(t *testing.T, pool *Pool, p *peer, key string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pool.Connect(ctx, p.speech.scheme(), p.addr)
	if err != nil {
		if _, ok := errors.AsType[*ConnectError](err); !ok {
			t.Errorf("Connect: %T %v", err, err)
		}
		return noConnection
	}
	switch rand.IntN(20) {
	case 0: // a slow ledger
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	case 1: // an impatient caller
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(rand.IntN(500))*time.Microsecond)
		defer stop()
	}
	body := ""
	if n := rand.IntN(4); n > 0 {
		body = strings.Repeat("x", []int{0, 20, 3000, 100_000}[n])
	}
	resp, err := conn.RoundTrip(p.request(key, body).WithContext(ctx))
	if err != nil {
		return either(sendError(t, err).NotSent, notSent, doubt)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return answered
}

// chaos answers a request, or not. What it says of a request it does not execute is
// true: a peer that lies in its refusals could not be told from one that does not.
func chaos(x *exchange, refuse func(*exchange)) {
	switch rand.IntN(30) {
	case 0:
		x.close()
	case 1:
		x.reset()
	case 2:
		x.halfClose()
	case 3:
		x.respondHalf()
		x.close()
	case 4, 5, 6: // the answer, and then the end: the next request may run into it
		x.respond(200, "", "ok")
		x.close()
	case 7:
		x.respond(200, "", "ok")
		x.reset()
	case 8:
		x.respond(200, "Connection: close\n", "")
	case 9:
		if x.muxed != nil {
			refuse(x)
			x.muxed.rst(x.stream, codeRefusedStream)
			return
		}
		io.WriteString(x.conn, stray+stray)
	case 10:
		if x.muxed != nil {
			x.muxed.rst(x.stream, []uint32{codeProtocol, codeInternal, codeCancel, codeEnhanceYourCalm}[rand.IntN(4)])
			return
		}
		x.respond(200, "", "ok")
	case 11:
		if x.muxed != nil {
			if x.muxed.accepted < x.stream {
				refuse(x)
			}
			x.muxed.goAway(x.muxed.accepted, uint32(rand.IntN(2)*codeEnhanceYourCalm))
			return
		}
		x.respond(204, "", "")
	case 12:
		if x.muxed != nil {
			x.muxed.goAway(max(x.muxed.accepted, x.stream), codeNo)
		}
		x.respond(200, "", "ok")
	default:
		x.respond(200, "", "ok")
	}
}

func (l *line) closeRaw() { l.raw.Close() }
func (l *line) halfRaw()  { l.raw.CloseWrite() }

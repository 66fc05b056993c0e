package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
	"fencepost/proxy/internal/failpoint"
	"fencepost/proxy/internal/upstream"
)

// exchange is one governed request on its way.
type exchange struct {
	p     *Proxy
	route *policy.Route
	way   *way
	req   *http.Request
	line  *line

	id          keystore.ID
	fingerprint string
	others      map[string]string // fingerprints by other schemes, as they were needed
	target      policy.Target
	body        *spooled
	trailer     http.Header // of the request
	inform      *informer
	atHand      *upstream.Conn // reserved before the claim, nil for none
	lease       *keystore.LeaseRef
	wait        time.Duration
	// derived says that the key was made here.
	derived bool
	renewed bool
	// settled says that nothing of this effect is left to be lost in a stop.
	settled func()
	// detached says that the request outlives its caller: a late answer is
	// awaited, and whoever awaits it frees what the request holds.
	detached bool
}

// run is the commit protocol, steps 3 to 7 of DESIGN section 4, and the reply.
// It reads from top to bottom; each step says what a crash there leaves.
//
// ctx is not the caller's: an effect that began is finished and recorded
// whether or not somebody still waits for the answer.
func (x *exchange) run(ctx context.Context, w http.ResponseWriter) {
	p := x.p

	// From here to the settlement this is an effect that a stop waits for. It is
	// counted before the flag is read, so that a stop either sees it or keeps it out.
	p.inFlight.Add(1)
	x.settled = sync.OnceFunc(func() { p.inFlight.Add(-1) })
	defer x.settled()
	if p.draining() {
		x.refuse(w, x.shuttingDown())
		return
	}

	// Outcomes that the ledger would not take fill a bounded memory. When it is
	// full there would be no place for this one.
	if p.backlog.full() {
		x.ledgerDown(errBacklogFull).write(x, w)
		return
	}

	// The same payload under a new key, where the route minds. A crash here leaves
	// a note of the payload that lasts for the owner's deadline.
	if ans := x.samePayload(ctx); ans != nil {
		ans.write(x, w)
		return
	}

	// Claim. A crash before the write leaves nothing. A crash after it leaves
	// RESERVED: nothing was sent, and the next request with this key and payload
	// takes over when the owner's deadline has passed.
	//
	// Where an idle connection is at hand, connecting cannot fail any more, and
	// claim and mark are one write: a crash after it leaves DISPATCHED.
	failpoint.Hit("claim.before")
	began := time.Now()
	if !p.cfg.ThreeSteps {
		x.atHand = x.way.pool.Idle(x.target.Scheme, x.target.Addr())
	}
	a, ans := x.claim(ctx)
	x.line.ledger += time.Since(began) - x.line.waited
	if ans != nil {
		x.handBack()
		ans.write(x, w)
		return
	}
	failpoint.Hit("claim.after")
	defer x.mustSettle(a)

	// Connect, before the mark: most failures to reach an upstream happen here,
	// and here they are proof that nothing was sent. A crash leaves RESERVED.
	life, dog := p.watchdog(x.route.Timeout)
	defer func() {
		if !x.detached {
			dog.cancel()
		}
	}()
	conn := x.atHand
	if conn == nil {
		var err error
		if conn, err = x.way.pool.Connect(life, x.target.Scheme, x.target.Addr()); err != nil {
			x.released(ctx, a, "no connection: "+err.Error())
			x.unreachable(a, err).write(x, w)
			return
		}
	}
	failpoint.Hit("connect.after")

	// Mark. Once this write is durable, the request counts as sent. A crash
	// before it leaves RESERVED; a crash after it leaves DISPATCHED, which reads
	// UNKNOWN although nothing may have left: doubt is never resolved by hope.
	failpoint.Hit("mark.before")
	if !a.marked() {
		if ans := x.mark(ctx, a); ans != nil {
			conn.Release()
			ans.write(x, w)
			return
		}
	}
	failpoint.Hit("mark.after")

	// Send, once. No layer below sends again: a connection makes one round trip.
	// A crash from here on leaves DISPATCHED, which reads UNKNOWN.
	began = time.Now()
	dog.await()
	x.inform = p.inform(w, x.req)
	done := x.dispatch(x.inform.trace(life), conn)
	var s sent
	select {
	case s = <-done:
		x.inform.end()
		dog.arrived()
	case <-dog.expired:
		x.inform.end()
		x.line.upstream = time.Since(began)
		x.late(ctx, w, a, done, life, dog)
		return
	}
	resp, err := s.resp, s.err
	if err == nil && !finalStatus(resp.StatusCode) {
		resp.Body.Close()
		err = fmt.Errorf("status %d is not the status of an answer", resp.StatusCode)
	}
	x.line.upstream = time.Since(began)
	failpoint.Hit("send.after")

	// Settle. Not sent is proved, never guessed; everything else without an
	// answer is UNKNOWN. A crash before the record leaves UNKNOWN; a crash after
	// it leaves the answer, for the retry and for the lookup.
	if err != nil {
		x.lost(ctx, a, life, err).write(x, w)
		return
	}
	defer resp.Body.Close()
	x.answered(ctx, w, a, resp, life, dog)
	failpoint.Hit("reply.after")
}

// handBack gives the connection back that is at hand, if there is one.
func (x *exchange) handBack() {
	if x.atHand != nil {
		x.atHand.Release()
		x.atHand = nil
	}
}

// send makes the one round trip. Only when an idle connection turns out to have
// been closed by the peer, with not one byte of the request written to it, is
// another connection tried: that is proof, and the mark still says no more than
// what is true.
func (x *exchange) send(life context.Context, conn *upstream.Conn) (*http.Response, error) {
	for range maxStale {
		reused := conn.Reused()
		resp, err := conn.RoundTrip(x.outgoing(life))
		var se *upstream.SendError
		if err == nil || !reused || !errors.As(err, &se) || !se.NotSent || life.Err() != nil {
			return resp, err
		}
		next, cerr := x.way.pool.Connect(life, x.target.Scheme, x.target.Addr())
		if cerr != nil {
			return nil, err
		}
		conn = next
	}
	return conn.RoundTrip(x.outgoing(life))
}

// maxStale is how many idle connections may turn out to be closed before the
// request is given back.
const maxStale = 3

// finalStatus reports whether a status is that of a final answer (RFC 9110,
// section 15). A switch of protocols is none: nobody asked for it.
func finalStatus(status int) bool { return status >= 200 && status <= 999 }

// errBacklogFull says why nothing new is sent.
var errBacklogFull = errors.New("too many outcomes wait in memory for the ledger")

// mark writes DISPATCHED. It returns the answer to give when the request must
// not be sent.
func (x *exchange) mark(ctx context.Context, a *attempt) *answer {
	began := time.Now()
	rep, no, err := a.mark(ctx, x.route.Lease.External)
	x.line.ledger += time.Since(began)
	switch {
	case err != nil:
		// The mark may be written, so the record may say "sent". We know that it
		// was not: the reservation is released as soon as the ledger is back.
		x.released(ctx, a, "the ledger did not confirm the mark; nothing was sent")
		return x.ledgerDown(err)
	case no == keystore.Allowed && rep.Result == keystore.Written:
		return nil
	case no == keystore.Allowed && rep.Result == keystore.LeaseLost:
		x.released(ctx, a, "the lease was lost before the send; nothing was sent")
		return x.leaseStale()
	}
	// Another took the reservation over while we connected: it is the owner now.
	rep, err = x.p.ledger.get(ctx, x.id)
	if err != nil {
		return x.ledgerDown(err)
	}
	c := keystore.ClaimInFlight
	if rep.Result == keystore.Found {
		if c = x.decide(&rep); c == keystore.ClaimTakeOver {
			c = keystore.ClaimInFlight
		}
	}
	x.line.decision = "superseded"
	return x.answerClaim(c, rep)
}

// keep is how long the record stays in the state it reaches.
func (x *exchange) keep() time.Duration {
	if x.derived {
		return x.route.Key.Window
	}
	return x.p.cfg.Retention
}

// released records that nothing was sent, or that the upstream took nothing.
func (x *exchange) released(ctx context.Context, a *attempt, why string) keystore.State {
	x.line.reason = why
	return x.settle(ctx, a, keystore.Event{Kind: keystore.Release, Keep: x.keep(), Why: why})
}

// doubted records that the outcome is not known.
func (x *exchange) doubted(ctx context.Context, a *attempt, why string, o *keystore.Outcome, body []byte) keystore.State {
	x.line.reason = why
	return x.settle(ctx, a, keystore.Event{Kind: keystore.Doubt, Why: why, Outcome: o, Body: body})
}

func (x *exchange) settle(ctx context.Context, a *attempt, ev keystore.Event) keystore.State {
	failpoint.Hit("record.before")
	began := time.Now()
	s := a.settle(ctx, ev)
	x.line.ledger += time.Since(began)
	failpoint.Hit("record.after")
	x.line.rec = a.record()
	// The effect is over; passing the answer on is not one.
	x.settled()
	return s
}

// lost settles a send that brought no answer. life is the send's own context:
// its cause tells our own time limit from the peer's doing.
func (x *exchange) lost(ctx context.Context, a *attempt, life context.Context, err error) *answer {
	var se *upstream.SendError
	if errors.As(err, &se) && se.NotSent {
		x.released(ctx, a, "proved not sent: "+err.Error())
		return x.unreachable(a, err)
	}
	timeout, what := x.explain(life, err)
	x.doubted(ctx, a, "sent, but "+what, nil, nil)
	return x.unknown(a, timeout, what)
}

// mustSettle is the last line of defence: a panic in this process must not
// leave an attempt that looks alive.
func (x *exchange) mustSettle(a *attempt) {
	if v := recover(); v != nil {
		if v != http.ErrAbortHandler {
			ctx := context.Background()
			switch a.record().State {
			case keystore.Reserved:
				x.released(ctx, a, "an internal failure before the send")
			case keystore.Dispatched:
				x.doubted(ctx, a, "an internal failure after the send", nil, nil)
			}
		}
		panic(v)
	}
}

package proxy

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"

	"fencepost/keystore"
	"fencepost/policy"
)

// claim makes this request the owner of its operation (the attempt is not nil),
// or says what it is answered with instead.
//
// A crash in here leaves nothing, or a RESERVED record that is free once its
// owner's deadline has passed: nothing was sent. (Or a DISPATCHED one, which reads
// UNKNOWN: see atHand.)
//
// With a connection to the upstream at hand, a new key is claimed and marked in one
// write.
func (x *exchange) claim(ctx context.Context) (*attempt, *answer) {
	p := x.p
	attemptID := uuid.NewString()
	operation, err := uuid.NewV7()
	if err != nil {
		return nil, x.ledgerDown(err)
	}
	ev := keystore.Event{
		Kind: keystore.Reserve, Writer: p.ledger.writer(), By: p.ledger.instance, Attempt: attemptID,
		Lease: x.lease, ExternalLease: x.route.Lease.External,
		Silence: p.cfg.OwnerDeadline, Keep: x.keep(),
		New: &keystore.Record{
			ID: x.id, Operation: operation.String(), Fingerprint: x.fingerprint, Method: x.req.Method, Route: x.route.Name, Derived: x.derived,
			Target:   keystore.Target{Scheme: x.target.Scheme, Host: x.target.Host, Path: x.target.Path, Query: x.target.Query},
			Captured: x.captured(),
		},
	}
	if x.atHand != nil {
		ev.Kind = keystore.Dispatch
	}
	w, no := keystore.Next(nil, ev, 0, nil)
	if no != keystore.Allowed {
		return nil, x.fail("the claim was refused: " + string(no))
	}
	rep, err := p.ledger.insert(ctx, w)
	if err != nil {
		x.letGo(w.Record, attemptID, "claim", err)
		return nil, x.ledgerDown(err)
	}
	switch rep.Result {
	case keystore.Written:
		x.line.before = keystore.StateNone
		x.line.decision = ev.Kind.String()
		return p.hold(attemptID, rep), nil
	case keystore.LeaseLost:
		return nil, x.leaseStale()
	}
	x.line.before = rep.Record.Reads(rep.Now, p.ledger.gone).State
	return x.meet(ctx, rep)
}

// meet decides what becomes of a request whose key exists already.
func (x *exchange) meet(ctx context.Context, rep keystore.Reply) (*attempt, *answer) {
	// It may wait here for long, and needs no connection before that is over.
	x.handBack()
	waited := false
	for range maxTries {
		x.line.rec = rep.Record
		c := x.decide(&rep)
		x.line.decision = c.String()
		switch c {
		case keystore.ClaimTakeOver:
			if x.p.draining() {
				return nil, &answer{problem: x.shuttingDown()}
			}
			a, next, ans := x.takeOver(ctx, rep)
			if a != nil || ans != nil {
				return a, ans
			}
			rep = next
			continue
		case keystore.ClaimInFlight:
			if x.wait <= 0 || waited {
				return nil, x.answerClaim(c, rep)
			}
			waited = true
			next, ok := x.await()
			if !ok {
				return nil, x.answerClaim(c, rep)
			}
			rep = next
			continue
		case keystore.ClaimExpired:
			// A derived key lasts for its window: after it, this is a new request.
			if !x.derived || x.renewed {
				return nil, x.answerClaim(c, rep)
			}
			x.renewed = true
			if _, err := x.p.ledger.delete(ctx, x.id, rep.Record.Version); err != nil {
				return nil, x.ledgerDown(err)
			}
			return x.claim(ctx)
		case keystore.ClaimUnknown:
			next, settled := x.reconsider(ctx, rep)
			switch {
			case settled:
				rep = next
				continue
			case !x.recognised(next):
				return nil, x.answerClaim(c, next)
			case x.p.draining():
				return nil, &answer{problem: x.shuttingDown()}
			}
			return x.resend(next), nil
		default:
			return nil, x.answerClaim(c, rep)
		}
	}
	// The record moved under every try: somebody is very busy with it.
	return nil, x.answerClaim(keystore.ClaimInFlight, rep)
}

// takeOver makes this request the owner of a free reservation. When another was
// quicker, it returns the record as it has become.
func (x *exchange) takeOver(ctx context.Context, rep keystore.Reply) (*attempt, keystore.Reply, *answer) {
	p := x.p
	attemptID := uuid.NewString()
	w, no := keystore.Next(&rep.Record, keystore.Event{
		Kind: keystore.TakeOver, Writer: p.ledger.writer(), By: p.ledger.instance, Attempt: attemptID,
		Lease: x.lease, ExternalLease: x.route.Lease.External,
		Silence: p.cfg.OwnerDeadline, Keep: x.keep(), Why: "nobody held the reservation",
	}, rep.Now, p.ledger.gone)
	if no != keystore.Allowed {
		return nil, rep, x.fail("the take-over was refused: " + string(no))
	}
	next, err := p.ledger.swap(ctx, w)
	if err != nil {
		x.letGo(w.Record, attemptID, "take-over", err)
		return nil, rep, x.ledgerDown(err)
	}
	switch next.Result {
	case keystore.Written:
		return p.hold(attemptID, next), next, nil
	case keystore.LeaseLost:
		return nil, next, x.leaseStale()
	case keystore.NotFound:
		// Swept between our two looks: the key is as good as new, for the retry.
		return nil, rep, x.answerClaim(keystore.ClaimInFlight, rep)
	}
	// A conflict brings the record, but not the body that a replay needs.
	full, err := p.ledger.get(ctx, x.id)
	if err != nil {
		return nil, rep, x.ledgerDown(err)
	}
	if full.Result != keystore.Found {
		return nil, rep, x.answerClaim(keystore.ClaimInFlight, next)
	}
	return nil, full, nil
}

// letGo releases, as soon as the ledger is back, a reservation that may have
// been written although the ledger failed: nothing was sent under it, and a
// retry need not wait for its deadline.
func (x *exchange) letGo(rec keystore.Record, attempt, what string, err error) {
	if errors.Is(err, keystore.ErrNotWritten) {
		return
	}
	x.p.backlog.add(rec, keystore.Event{Kind: keystore.Release, Attempt: attempt, Keep: x.keep(), Why: "the ledger did not confirm the " + what + "; nothing was sent"}, err)
}

// await waits for an operation in flight to be settled.
//
// It waits for as long as the caller does and no stop is asked for: nothing was
// sent for this request, so nothing is lost with it.
func (x *exchange) await() (keystore.Reply, bool) {
	x.p.inFlight.Add(-1)
	defer x.p.inFlight.Add(1)
	ctx, cancel := context.WithTimeout(x.req.Context(), x.wait)
	defer cancel()
	defer context.AfterFunc(x.p.drain, cancel)()
	start := time.Now()
	defer func() { x.line.waited = time.Since(start) }()
	return x.p.waiters.until(ctx, x.id, func(r *keystore.Reply) bool {
		return r.Result == keystore.Found && x.decide(r) != keystore.ClaimInFlight
	})
}

// captured takes from the request what a reconciliation will need.
func (x *exchange) captured() map[string]string {
	if len(x.route.Capture) == 0 {
		return nil
	}
	m := &policy.Message{Method: x.req.Method, Path: x.target.Path, Query: x.target.Query, Header: x.req.Header}
	if x.body.size <= maxCaptureBody {
		// A body in a file that cannot be read is sent as it is all the same, or
		// fails there; here it only has nothing to capture.
		m.Body, _ = io.ReadAll(x.body.reader())
	}
	return policy.Capture(x.route.Capture, m)
}

// maxCaptureBody bounds the body that capture rules look into.
const maxCaptureBody = 1 << 20

// reconsider asks the provider about an UNKNOWN operation that a duplicate comes
// for, where the route says how (DESIGN section 5). It returns the record as it has
// become, and whether that reads otherwise now. Without evidence the doubt stays.
func (x *exchange) reconsider(ctx context.Context, rep keystore.Reply) (keystore.Reply, bool) {
	if x.route.Reconcile == nil {
		return rep, false
	}
	after, _, err := x.p.reconcile(ctx, rep, x.route, false)
	if err != nil {
		return rep, false
	}
	if v := after.Record.Reads(after.Now, x.p.ledger.gone); v.State == keystore.Unknown {
		return after, false
	}
	// With the body that a replay needs.
	full, err := x.p.ledger.get(ctx, x.id)
	if err != nil || full.Result != keystore.Found {
		return rep, false
	}
	return full, true
}

// recognised reports whether the upstream still recognises the key of an UNKNOWN
// operation, so that sending it again cannot have a second effect.
func (x *exchange) recognised(rep keystore.Reply) bool {
	r := &rep.Record
	s := policy.Situation{Sent: true, Deduplicates: x.route.UpstreamKey.Recognises(x.req.Method), SinceFirst: rep.Now.Sub(r.FirstSentAt)}
	return !r.FirstSentAt.IsZero() && policy.Recover(s) == policy.ActionResend
}

// resend makes this request the next attempt at an UNKNOWN operation. Nothing is
// written before the mark: until then, and wherever it ends, the doubt stands, for
// the upstream's memory of the key is good for this send and not for ever.
func (x *exchange) resend(rep keystore.Reply) *attempt {
	id := uuid.NewString()
	a := x.p.hold(id, rep)
	a.resend = &keystore.Event{
		Kind: keystore.Resend, Attempt: id, Lease: x.lease,
		Why: "the upstream recognises this key for " + x.route.UpstreamKey.Deduplicates.String() + " after the first send; it is sent again with the same one",
	}
	x.line.decision = a.resend.Kind.String()
	return a
}

package proxy

import (
	"context"
	"sync"
	"time"

	"fencepost/keystore"
)

// attempt is this process's hold on an operation, from its claim to its
// settlement. It keeps the record as last written and, once the request was
// marked as sent, tells the ledger that its owner is alive.
type attempt struct {
	p  *Proxy
	id string

	mu    sync.Mutex
	rec   keystore.Record
	now   keystore.Instant
	timer *time.Timer
	over  bool
	// resend is what marks the attempt where an earlier one is in doubt; nil is the
	// usual mark of a reservation.
	resend *keystore.Event
}

// hold takes note of a record that this attempt has just written, or, for a resend,
// is about to.
func (p *Proxy) hold(id string, rep keystore.Reply) *attempt {
	a := &attempt{p: p, id: id, rec: rep.Record, now: rep.Now}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent() {
		a.timer = time.AfterFunc(p.cfg.OwnerDeadline/3, a.extend)
	}
	return a
}

// marked reports whether the ledger says already that the attempt was sent.
func (a *attempt) marked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent()
}

// sent is marked with a.mu held. The mark of another attempt, whose owner fell
// silent, is none of this one.
func (a *attempt) sent() bool {
	return a.rec.State == keystore.Dispatched && a.rec.AttemptID == a.id
}

// reads is the state that the ledger was last known to show.
func (a *attempt) reads() keystore.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec.Reads(a.now, a.p.ledger.gone).State
}

// record returns the record as last known.
func (a *attempt) record() keystore.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec
}

// mark writes DISPATCHED. On success the attempt extends its deadline by itself
// until it is settled. A refusal means that the reservation is no longer ours.
func (a *attempt) mark(ctx context.Context, externalLease bool) (keystore.Reply, keystore.Refusal, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ev := keystore.Event{Kind: keystore.Mark, Attempt: a.id}
	if a.resend != nil {
		ev = *a.resend
	}
	ev.ExternalLease, ev.Silence = externalLease, a.p.cfg.OwnerDeadline
	rep, no, err := a.p.ledger.change(ctx, a.rec, a.now, ev)
	if err == nil && no == keystore.Allowed && rep.Result == keystore.Written {
		a.rec, a.now = rep.Record, rep.Now
		a.timer = time.AfterFunc(a.p.cfg.OwnerDeadline/3, a.extend)
	}
	return rep, no, err
}

// extend says that the attempt is slow but alive. When the ledger cannot be
// told, the record will read UNKNOWN; the answer, if it comes, still settles it.
func (a *attempt) extend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	rep, no, err := a.p.ledger.change(context.Background(), a.rec, a.now, keystore.Event{Kind: keystore.Extend, Attempt: a.id, Silence: a.p.cfg.OwnerDeadline})
	switch {
	case err != nil:
		a.p.log.Warn("cannot extend the deadline of an attempt; it will read unknown if this goes on", "operation", a.rec.Operation, "error", err)
	case no != keystore.Allowed || rep.Result != keystore.Written:
		// Settled by somebody else: nothing is left to extend.
		a.over = true
		return
	default:
		a.rec, a.now = rep.Record, rep.Now
	}
	a.timer.Reset(a.p.cfg.OwnerDeadline / 3)
}

// settle writes how the attempt ended and returns the state that the ledger now
// shows. When the ledger does not take it, the event waits in memory and the
// state is what the ledger was last known to show.
func (a *attempt) settle(ctx context.Context, ev keystore.Event) keystore.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over && ev.Kind != keystore.Complete {
		return a.rec.State
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	ev.Attempt = a.id
	rep, no, err := a.p.ledger.change(ctx, a.rec, a.now, ev)
	// Only now: had the ledger panicked, the attempt would still have to be settled.
	a.over = true
	switch {
	case err != nil:
		a.p.backlog.add(a.rec, ev, err)
		return a.rec.State
	case no != keystore.Allowed && ev.Kind != keystore.Release:
		// Settled otherwise in the meantime: what we know is evidence only. That
		// nothing was sent is none: the reservation has simply moved on.
		a.p.evidence(ctx, rep, ev, no)
	}
	a.rec, a.now = rep.Record, rep.Now
	a.p.waiters.wake(a.rec.ID)
	return rep.Record.State
}

// settleLate is settle for an answer that came after the doubt was recorded.
func (a *attempt) settleLate(ctx context.Context, ev keystore.Event) keystore.State {
	a.mu.Lock()
	a.over = false
	a.mu.Unlock()
	return a.settle(ctx, ev)
}

// evidence keeps a result that came too late to change anything.
func (p *Proxy) evidence(ctx context.Context, rep keystore.Reply, ev keystore.Event, no keystore.Refusal) {
	p.log.Warn("a result came for an operation that was settled otherwise; it is kept as evidence",
		"operation", rep.Record.Operation, "scope", rep.Record.Scope, "key", rep.Record.Key, "attempt", ev.Attempt, "event", ev.Kind, "state", rep.Record.State, "reason", string(no))
	note := keystore.Event{Kind: keystore.Note, Attempt: ev.Attempt, Outcome: ev.Outcome, Why: ev.Kind.String() + " refused: " + string(no)}
	if _, _, err := p.ledger.change(ctx, rep.Record, rep.Now, note); err != nil {
		p.log.Warn("cannot keep the evidence", "operation", rep.Record.Operation, "error", err)
	}
}

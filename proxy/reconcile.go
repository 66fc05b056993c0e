package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// maxLookup bounds the answer to a provider lookup.
const maxLookup = 1 << 20

// errNoReconciler says that there is no way to ask about an operation.
var errNoReconciler = errors.New("its route has no reconcile section, or is gone from the configuration")

// errProbed says that another instance is asking right now.
var errProbed = errors.New("it is being reconciled right now")

// errNotDue says that somebody has asked since this instance saw that it is time.
var errNotDue = errors.New("the next look is not due yet")

// reconcile asks the provider what became of an operation that reads UNKNOWN,
// and settles it where the answer is proof. It returns the record as it has
// become and what the answer was worth.
//
// The record itself is the lock: of many instances one gets to ask, and one that
// dies while asking holds nobody up for longer than the lookup may take. A crash
// after the lookup leaves UNKNOWN, to be asked about again. due says that it is
// the schedule that asks, which waits its turn.
func (p *Proxy) reconcile(ctx context.Context, rep keystore.Reply, route *policy.Route, due bool) (keystore.Reply, policy.Verdict, error) {
	if route == nil || route.Reconcile == nil {
		return rep, policy.Verdict{}, errNoReconciler
	}
	rc := route.Reconcile
	rep, no, err := p.ledger.change(ctx, rep.Record, rep.Now, keystore.Event{Kind: keystore.Probe, Silence: rc.Timeout + 5*time.Second, Due: due})
	switch {
	case err != nil:
		return rep, policy.Verdict{}, err
	case no == keystore.RefusedHeld:
		return rep, policy.Verdict{}, errProbed
	case no == keystore.RefusedNotDue:
		return rep, policy.Verdict{}, errNotDue
	case no != keystore.Allowed:
		// It was settled in the meantime: that is as good.
		return rep, policy.Verdict{}, nil
	}
	v := p.lookUp(ctx, route, &rep.Record)
	r := &rep.Record
	ev := keystore.Event{Keep: p.cfg.Retention, Why: v.Why}
	// The time is measured before the lookup, and from the moment the attempt
	// ended in doubt: an upstream that was still at it when we gave up has not been
	// given the time yet. Both make "not found" harder to believe, never easier.
	switch policy.Recover(policy.Situation{
		Sent: true, Evidence: v.Evidence, SinceSend: rep.Now.Sub(doubtedAt(r)), Complete: rc.Complete, Settle: rc.Settle,
	}) {
	case policy.ActionRecord:
		ev.Kind = keystore.Confirm
		ev.Body = v.Body
		ev.Outcome = &keystore.Outcome{Source: keystore.FromReconcile, Status: rc.Status, BodySize: int64(len(v.Body)), Retained: v.Kept}
		if v.Kept {
			ev.Outcome.Header = []keystore.Field{{Name: "Content-Type", Value: "application/json"}}
		}
	case policy.ActionRelease:
		// Of this attempt only: another may have been sent while the provider was asked.
		ev.Kind, ev.Attempt = keystore.Clear, r.AttemptID
	default:
		ev.Kind = keystore.Probed
		ev.Silence = backOff(rc, r.Probes)
		if v.Evidence == policy.EvidenceNotFound {
			ev.Why += ", which is not proof"
		}
	}
	after, no, err := p.ledger.change(context.WithoutCancel(ctx), *r, rep.Now, ev)
	if err != nil {
		return rep, v, err
	}
	p.waiters.wake(r.ID)
	p.log.Info("reconciled", "scope", r.Scope, "key", r.Key, "operation", r.Operation, "route", route.Name, "evidence", v.Evidence.String(), "reason", v.Why, "after", after.Record.State.String(), "version", after.Record.Version, "refused", string(no))
	return after, v, nil
}

// backOff is the pause to the next look: it doubles with each that was in vain,
// and varies, so that many operations do not come due at once.
func backOff(rc *policy.Reconciler, probes int) time.Duration {
	d := rc.Every << min(probes, 20)
	if d <= 0 || d > rc.MaxEvery {
		d = rc.MaxEvery
	}
	return d - d/5 + rand.N(d/5*2+1)
}

// lookUp makes the lookup request and reads its answer.
func (p *Proxy) lookUp(ctx context.Context, route *policy.Route, r *keystore.Record) policy.Verdict {
	rc := route.Reconcile
	op := &policy.Operation{Key: r.Key, ID: r.Operation, Attempt: r.Attempt, Method: r.Method, Path: r.Target.Path, Captured: r.Captured}
	target, err := rc.URL.Expand(op)
	if err != nil {
		return policy.Verdict{Evidence: policy.EvidenceUnavailable, Why: "no lookup: " + err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, rc.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, rc.Method, target, nil)
	if err != nil {
		return policy.Verdict{Evidence: policy.EvidenceUnavailable, Why: "no lookup: its URL is not usable"}
	}
	for name, value := range rc.Header {
		req.Header.Set(name, value)
	}
	// RoundTrip, so that no redirect carries the credentials elsewhere.
	resp, err := p.wayTo(route, req.URL).transport.RoundTrip(req)
	if err != nil {
		return policy.Verdict{Evidence: policy.EvidenceUnavailable, Why: fmt.Sprintf("the lookup at %s had no answer: %v", req.URL.Host, err)}
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	n, err := io.Copy(&body, io.LimitReader(resp.Body, maxLookup+1))
	switch {
	case err != nil:
		return policy.Verdict{Evidence: policy.EvidenceUnavailable, Why: fmt.Sprintf("the lookup's answer (%d) was cut short: %v", resp.StatusCode, err)}
	case n > maxLookup:
		return policy.Verdict{Evidence: policy.EvidenceAmbiguous, Why: fmt.Sprintf("the lookup's answer (%d) is larger than %d bytes", resp.StatusCode, maxLookup)}
	}
	return rc.Read(&policy.Message{Status: resp.StatusCode, Header: resp.Header, Body: body.Bytes()}, op)
}

// wayTo is how a lookup's URL is reached: like the route's upstream, with the same
// certificates, where it is the same host; plainly otherwise.
func (p *Proxy) wayTo(route *policy.Route, u *url.URL) *way {
	if up := route.Upstream; up != nil && up.Scheme == u.Scheme && strings.EqualFold(up.Host, u.Host) {
		if w := p.rules.Load().ways[route]; w != nil {
			return w
		}
	}
	return p.ways.plain
}

// routeNamed finds the route that governs an operation by the rules in force.
func (p *Proxy) routeNamed(name string) *policy.Route {
	for _, r := range p.rules.Load().all() {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// ReconcileDue asks the provider about every operation that reads UNKNOWN, has a
// way to ask, and is due. Errors mean that the ledger failed.
func (p *Proxy) ReconcileDue(ctx context.Context) error {
	any := false
	for _, r := range p.rules.Load().all() {
		any = any || r.Reconcile != nil
	}
	if !any {
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, 4)
	for _, state := range []keystore.State{keystore.Unknown, keystore.Dispatched} {
		q := keystore.Query{State: state, Limit: sweepPage}
		for {
			page, err := p.ledger.list(ctx, q)
			if err != nil {
				return err
			}
			for _, r := range page.Records {
				route := p.routeNamed(r.Route)
				if !p.due(&r, page.Now, route) {
					continue
				}
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					if _, _, err := p.reconcile(ctx, keystore.Reply{Record: r, Now: page.Now}, route, true); err != nil && !errors.Is(err, errProbed) && !errors.Is(err, errNotDue) {
						p.log.Warn("an operation could not be reconciled", "operation", r.Operation, "error", err)
					}
				})
			}
			if page.Next == "" {
				break
			}
			q.Cursor = page.Next
		}
	}
	return nil
}

// due reports whether it is time to ask about an operation. The first look waits
// for the provider to settle.
func (p *Proxy) due(r *keystore.Record, now keystore.Instant, route *policy.Route) bool {
	if route == nil || route.Reconcile == nil || r.Reads(now, p.ledger.gone).State != keystore.Unknown {
		return false
	}
	if r.State == keystore.Unknown && !r.Deadline.IsZero() {
		return r.Deadline.Reached(now)
	}
	return now.Sub(doubtedAt(r)) >= route.Reconcile.Settle
}

// doubtedAt is when the last attempt ended in doubt; where nobody wrote that
// down yet, when it was sent.
func doubtedAt(r *keystore.Record) keystore.Instant {
	for i := len(r.History) - 1; i >= 0; i-- {
		if h := &r.History[i]; h.To == keystore.Unknown {
			return h.At
		}
	}
	return r.DispatchedAt
}

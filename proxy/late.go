package proxy

import (
	"context"
	"fmt"
	"net/http"

	"fencepost/keystore"
	"fencepost/policy"
	"fencepost/proxy/internal/upstream"
)

// sent is what one round trip brought.
type sent struct {
	resp *http.Response
	err  error
}

// dispatch makes the one round trip in the background, so that a caller whose
// patience ends need not end the request.
func (x *exchange) dispatch(life context.Context, conn *upstream.Conn) <-chan sent {
	done := make(chan sent, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- sent{err: fmt.Errorf("an internal failure while sending: %v", v)}
			}
		}()
		resp, err := x.send(life, conn)
		done <- sent{resp, err}
	}()
	return done
}

// late answers a caller whose route's time limit has passed: the outcome is
// UNKNOWN, and recorded as that. The request itself lives on for a while, since
// the answer that comes late is the best evidence there can be.
func (x *exchange) late(ctx context.Context, w http.ResponseWriter, a *attempt, done <-chan sent, life context.Context, dog *watchdog) {
	what := fmt.Sprintf("the upstream did not answer within %v", x.route.Timeout)
	x.doubted(ctx, a, "sent, but "+what, nil, nil)
	patience := x.p.cfg.LateAnswer
	if patience <= 0 {
		dog.cancel()
		x.unknown(a, true, what).write(x, w)
		return
	}
	dog.extend(patience)
	x.detached = true
	x.p.inFlight.Add(1)
	go x.awaitLate(a, done, life, dog)
	x.unknown(a, true, what).write(x, w)
}

// awaitLate takes the answer of an attempt whose caller was told "unknown". It
// settles the doubt unless somebody settled it otherwise, which is then visible
// as evidence in the record.
func (x *exchange) awaitLate(a *attempt, done <-chan sent, life context.Context, dog *watchdog) {
	p := x.p
	defer p.inFlight.Add(-1)
	defer x.body.close()
	defer dog.cancel()
	s := <-done
	if s.err != nil {
		// Whatever it says, the doubt stays as it was recorded: a connection that
		// breaks after the time limit proves nothing that we would act on.
		return
	}
	defer s.resp.Body.Close()
	body, err := readWhole(s.resp, x.route.Limits.Response)
	o := x.outcomeOf(s.resp, body, err)
	if o == nil {
		return
	}
	ev := keystore.Event{Keep: x.keep(), Outcome: o, Body: body, Why: fmt.Sprintf("the upstream answered %d after the route's timeout", o.Status)}
	switch x.classify(a, s.resp, body) {
	case policy.ClassFinal:
		ev.Kind = keystore.Complete
	case policy.ClassNotApplied:
		ev.Kind, ev.Outcome, ev.Body = keystore.Release, nil, nil
	default:
		// It does not settle anything, but whoever does should see it.
		ev.Kind = keystore.Doubt
	}
	state := a.settleLate(context.Background(), ev)
	r := a.record()
	p.log.Info("a late answer", "scope", r.Scope, "key", r.Key, "operation", r.Operation, "attempt", r.Attempt, "upstream_status", o.Status, "after", state.String(), "version", r.Version)
}

package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Why a send was given up by this process.
var (
	errUpstreamTimeout = errors.New("the upstream did not answer within the route's timeout")
	errShutdown        = errors.New("this proxy was stopped before the upstream answered")
)

// watchdog bounds one send by the route's time limit and by this process's
// life. It does not end when the caller leaves.
type watchdog struct {
	timer  *time.Timer
	limit  time.Duration
	cancel context.CancelFunc
}

func (p *Proxy) watchdog(limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(p.life)
	t := time.AfterFunc(limit, func() { cancel(errUpstreamTimeout) })
	return ctx, &watchdog{timer: t, limit: limit, cancel: func() {
		t.Stop()
		cancel(context.Canceled)
	}}
}

// alive starts the limit anew: an answer that streams is bounded between its
// parts, not as a whole.
func (d *watchdog) alive() { d.timer.Reset(d.limit) }

// explain says in words why a send brought no whole answer, and whether it was
// a time limit.
func (x *exchange) explain(life context.Context, err error) (timeout bool, what string) {
	switch cause := context.Cause(life); {
	case errors.Is(cause, errUpstreamTimeout):
		return true, fmt.Sprintf("the upstream did not answer within %v", x.route.Timeout)
	case errors.Is(cause, errShutdown):
		return false, errShutdown.Error()
	}
	return false, "the connection to the upstream was lost: " + err.Error()
}

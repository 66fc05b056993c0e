package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Why a send was given up by this process.
var (
	errUpstreamTimeout = errors.New("the upstream did not answer within the route's timeout")
	errShutdown        = errors.New("this proxy was stopped before the upstream answered")
)

// watchdog bounds one exchange with an upstream by the route's time limit and by
// this process's life. It does not end when the caller leaves.
//
// While the answer's head is awaited, the limit ends the caller's patience but
// not the request: what comes late is still evidence. At any other time the
// limit cuts the request off.
type watchdog struct {
	timer *time.Timer
	limit time.Duration
	stop  context.CancelCauseFunc

	mu      sync.Mutex
	patient bool          // the head is awaited
	expired chan struct{} // closed when the limit passed while it was
}

func (p *Proxy) watchdog(limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(p.life)
	d := &watchdog{limit: limit, stop: cancel, expired: make(chan struct{})}
	d.timer = time.AfterFunc(limit, d.fire)
	return ctx, d
}

func (d *watchdog) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.patient {
		d.patient = false
		close(d.expired)
		return
	}
	d.stop(errUpstreamTimeout)
}

// await says that the head of the answer is awaited from now on.
func (d *watchdog) await() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.patient = true
}

// arrived says that the head came. Where the limit passed in the same moment,
// the rest of the answer gets a limit of its own.
func (d *watchdog) arrived() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.patient {
		d.timer.Reset(d.limit)
	}
	d.patient = false
}

// alive starts the limit anew: an answer that streams is bounded between its
// parts, not as a whole.
func (d *watchdog) alive() { d.timer.Reset(d.limit) }

// rest stops the limit while a part is passed on: how long the caller takes is no
// silence of the upstream's.
func (d *watchdog) rest() { d.timer.Stop() }

// extend lets a late answer come for that much longer.
func (d *watchdog) extend(by time.Duration) { d.timer.Reset(by) }

// cancel ends the exchange and frees what it holds.
func (d *watchdog) cancel() {
	d.timer.Stop()
	d.stop(context.Canceled)
}

// explain says in words why a send brought no whole answer, and whether it was
// a time limit.
func (x *exchange) explain(life context.Context, err error) (timeout bool, what string) {
	switch cause := context.Cause(life); {
	case errors.Is(cause, errUpstreamTimeout):
		return true, fmt.Sprintf("the upstream did not answer within %v", x.route.Timeout)
	case errors.Is(cause, errShutdown):
		return false, errShutdown.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, "the upstream closed the connection before its answer was complete"
	}
	return false, "the connection to the upstream was lost: " + err.Error()
}

package proxy

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"fencepost/keystore"
)

// backlog holds what this process knows and the ledger would not take. It is
// written as soon as the ledger is back, for as long as the process lives. What
// is lost with the process reads UNKNOWN.
type backlog struct {
	p        *Proxy
	maxItems int
	maxBytes int64

	mu    sync.Mutex
	items []pending
	bytes int64
	busy  bool
	idle  chan struct{} // closed when nothing is pending
}

type pending struct {
	rec keystore.Record
	ev  keystore.Event
}

func newBacklog(p *Proxy, maxItems int, maxBytes int64) *backlog {
	b := &backlog{p: p, maxItems: maxItems, maxBytes: maxBytes, idle: make(chan struct{})}
	close(b.idle)
	return b
}

// full reports whether nothing new may be sent: the outcome might find no room.
func (b *backlog) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items) >= b.maxItems || b.bytes >= b.maxBytes
}

// len returns how many events wait.
func (b *backlog) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items)
}

// add keeps ev for rec until the ledger takes it. It never refuses: the effect
// has happened. The bounds keep new effects out instead.
func (b *backlog) add(rec keystore.Record, ev keystore.Event, cause error) {
	b.p.log.Error("the ledger did not take an event; it waits in memory", "operation", rec.Operation, "scope", rec.Scope, "key", rec.Key, "event", ev.Kind.String(), "error", cause)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items = append(b.items, pending{rec, ev})
	b.bytes += int64(len(ev.Body))
	if !b.busy {
		b.busy = true
		b.idle = make(chan struct{})
		go b.work()
	}
}

// wait returns when nothing is pending or ctx ends, and how much is left.
func (b *backlog) wait(ctx context.Context) int {
	b.mu.Lock()
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	return b.len()
}

// work writes what is pending, oldest first, until nothing is left.
func (b *backlog) work() {
	const first, most = 50 * time.Millisecond, 5 * time.Second
	pause := first
	for {
		b.mu.Lock()
		if len(b.items) == 0 {
			b.busy = false
			close(b.idle)
			b.mu.Unlock()
			return
		}
		it := b.items[0]
		b.mu.Unlock()
		if err := b.write(it); err != nil {
			// Behind the others, in case it is only this record that cannot be
			// written.
			b.mu.Lock()
			b.items = append(b.items[1:], it)
			b.mu.Unlock()
			// Jitter: many proxies come back to one ledger at once.
			t := time.NewTimer(pause/2 + rand.N(pause))
			select {
			case <-t.C:
			case <-b.p.life.Done():
				t.Stop()
				b.lost()
				return
			}
			pause = min(pause*2, most)
			continue
		}
		pause = first
		b.mu.Lock()
		b.items[0] = pending{}
		b.items = b.items[1:]
		b.bytes -= int64(len(it.ev.Body))
		b.mu.Unlock()
	}
}

// write brings one event to the ledger, whatever its record has become.
func (b *backlog) write(it pending) error {
	ctx := context.Background()
	rep, err := b.p.ledger.get(ctx, it.rec.ID)
	if err != nil {
		return err
	}
	if rep.Result == keystore.NotFound || rep.Record.Operation != it.rec.Operation {
		// The claim itself was never written.
		return nil
	}
	rep, no, err := b.p.ledger.change(ctx, rep.Record, rep.Now, it.ev)
	if err != nil {
		return err
	}
	if no != keystore.Allowed {
		if it.ev.Kind != keystore.Release && !b.alreadyDone(rep.Record, it.ev) {
			b.p.evidence(ctx, rep, it.ev, no)
		}
	} else {
		b.p.log.Info("the ledger took an event that had waited", "operation", it.rec.Operation, "event", it.ev.Kind.String(), "state", rep.Record.State.String())
	}
	b.p.waiters.wake(it.rec.ID)
	return nil
}

// alreadyDone reports whether the event was written after all, its reply lost.
func (b *backlog) alreadyDone(r keystore.Record, ev keystore.Event) bool {
	for _, h := range r.History {
		if h.Event == ev.Kind && h.Attempt == ev.Attempt && h.By == b.p.ledger.instance {
			return true
		}
	}
	return false
}

// lost says what goes down with the process.
func (b *backlog) lost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range b.items {
		b.p.log.Error("stopping with an event that the ledger never took; the operation will read unknown",
			slog.String("operation", it.rec.Operation), slog.String("scope", it.rec.Scope), slog.String("key", it.rec.Key), slog.String("event", it.ev.Kind.String()))
	}
}

package upstream

import (
	"slices"
	"time"
)

// hostKey names an upstream as the caller of Connect does.
type hostKey struct{ scheme, host string }

// host is what a pool knows of one upstream. Pool.mu guards it. It exists while it
// has a connection, a dial or a waiter.
type host struct {
	pool    *Pool
	key     hostKey
	open    int             // connections, those being dialed included
	dialing int             // of these, those being dialed
	idle    []*link         // HTTP/1.1, longest unused first; taken from the end
	shared  []*link         // HTTP/2, oldest first
	waiters []chan struct{} // calls of Connect in line; each channel is written once
	changes uint64          // how often something changed that a waiter may wait for

	// single is set while the host is expected to speak HTTP/2: one connection
	// carries many requests then, so one new connection at a time is enough.
	single bool

	reaper *time.Timer // closes what stayed idle too long
	armed  bool        // the reaper will run
}

// hostFor returns the host for a key, new if need be.
func (p *Pool) hostFor(key hostKey) *host {
	h := p.hosts[key]
	if h == nil {
		h = &host{pool: p, key: key, single: p.multiplexes(key.scheme)}
		p.hosts[key] = h
	}
	return h
}

// multiplexes reports whether the pool offers HTTP/2 for a scheme.
func (p *Pool) multiplexes(scheme string) bool {
	return scheme == "http" && p.opts.H2C || scheme == "https" && p.opts.HTTP2
}

// mayDial reports whether a new connection may be opened now.
func (h *host) mayDial() bool {
	if h.single && (h.dialing > 0 || slices.ContainsFunc(h.shared, func(l *link) bool { return !l.open })) {
		return false
	}
	limit := h.pool.opts.MaxConnsPerHost
	return limit <= 0 || h.open < limit
}

// freeSlot gives back a place under MaxConnsPerHost.
func (h *host) freeSlot() {
	h.open--
	h.wakeOne()
	if h.open == 0 && len(h.waiters) == 0 && h.pool.hosts[h.key] == h {
		if h.reaper != nil {
			h.reaper.Stop()
		}
		delete(h.pool.hosts, h.key)
	}
}

// enqueue puts a call of Connect in line: at the end, or, if it has waited
// before and found nothing, at the front.
func (h *host) enqueue(front bool) chan struct{} {
	turn := make(chan struct{}, 1)
	if front {
		h.waiters = slices.Insert(h.waiters, 0, turn)
	} else {
		h.waiters = append(h.waiters, turn)
	}
	return turn
}

// wakeOne lets the first in line look again. Whoever frees something that a waiter
// could use wakes one; a woken waiter that leaves without looking wakes the next;
// and who is about to get in line looks again if there were changes meanwhile. So
// nothing is ever free while somebody waits and nobody is about to look.
func (h *host) wakeOne() bool {
	h.changes++
	if len(h.waiters) == 0 {
		return false
	}
	h.waiters[0] <- struct{}{}
	h.waiters = slices.Delete(h.waiters, 0, 1)
	return true
}

func (h *host) wakeAll() {
	for h.wakeOne() {
	}
}

// leave takes a call of Connect out of the line.
func (h *host) leave(turn chan struct{}) {
	if i := slices.Index(h.waiters, turn); i >= 0 {
		h.waiters = slices.Delete(h.waiters, i, i+1)
		return
	}
	h.wakeOne() // it was woken and did not look: pass it on
}

// popIdle takes the connection that was used last: the one that the peer is least
// likely to be closing, and so the others grow old and can be closed. Those that
// have been idle for too long are returned to be shut.
func (h *host) popIdle(now time.Time) (l *link, old []*link) {
	for n := len(h.idle); n > 0; n = len(h.idle) {
		l = h.idle[n-1]
		h.idle[n-1] = nil
		h.idle = h.idle[:n-1]
		l.pooled = false
		// Wall clock time: a machine that slept has old connections.
		if now.Round(0).Sub(l.idleSince.Round(0)) < l.idleLimit {
			return l, old
		}
		old = append(old, l)
	}
	return nil, old
}

// putIdle makes an HTTP/1.1 connection available again, or shuts it.
func (p *Pool) putIdle(l *link) {
	p.mu.Lock()
	h := l.host
	if l.dead || p.closed || l.idleLimit <= 0 || len(h.idle) >= p.opts.MaxIdlePerHost {
		p.mu.Unlock()
		l.shut()
		return
	}
	l.pooled = true
	l.idleSince = time.Now()
	h.idle = append(h.idle, l)
	h.wakeOne()
	h.arm(p.opts.IdleTimeout)
	p.mu.Unlock()
}

// arm has the reaper run, unless it will already.
func (h *host) arm(after time.Duration) {
	if h.armed {
		return
	}
	h.armed = true
	if h.reaper == nil {
		h.reaper = time.AfterFunc(after, h.reap)
	} else {
		h.reaper.Reset(after)
	}
}

// reap shuts the connections that have been idle for too long.
func (h *host) reap() {
	p := h.pool
	p.mu.Lock()
	now := time.Now()
	next := p.opts.IdleTimeout + 1
	var old []*link
	expired := func(l *link) bool {
		left := p.opts.IdleTimeout - now.Sub(l.idleSince)
		if left <= 0 {
			l.pooled, l.retired = false, true
			old = append(old, l)
			return true
		}
		next = min(next, left)
		return false
	}
	h.idle = slices.DeleteFunc(h.idle, expired)
	h.shared = slices.DeleteFunc(h.shared, func(l *link) bool { return l.users == 0 && expired(l) })
	h.armed = false
	if next <= p.opts.IdleTimeout {
		h.arm(next)
	}
	p.mu.Unlock()
	for _, l := range old {
		l.shut()
	}
}

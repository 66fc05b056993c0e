package upstream

import (
	"context"
	"errors"
	"time"
)

// ErrClosed is the cause of a ConnectError after Close.
var ErrClosed = errors.New("upstream: the pool is closed")

// Connect returns a connection to host ("name" or "name:port") that is reserved
// for one request: an idle one, or a new one. No byte of a request has left when it
// returns, and every error, always a *ConnectError, means that nothing was sent.
//
// The caller must either send one request with Conn.RoundTrip or give the
// connection back with Conn.Release. It should not hold it for long: the peer may
// close it meanwhile. RoundTrip then fails with nothing sent.
func (p *Pool) Connect(ctx context.Context, scheme, host string) (*Conn, error) {
	key := hostKey{scheme, host}
	if ctx.Err() != nil {
		return nil, connectError(ctx, key, PhaseWait, context.Cause(ctx))
	}
	for woken := false; ; {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, connectError(ctx, key, PhaseWait, ErrClosed)
		}
		h := p.hostFor(key)
		changes := h.changes
		if woken || len(h.waiters) == 0 { // those in line come first
			if len(h.idle) > 0 {
				l, old := h.popIdle(time.Now())
				p.mu.Unlock()
				for _, o := range old {
					o.shut()
				}
				if l == nil {
					continue
				}
				if l.reserve(ctx) {
					return newConn(l, true), nil
				}
				l.shut()
				continue
			}
			if l := p.share(h); l != nil {
				p.mu.Unlock()
				return newConn(l, true), nil
			}
			if h.changes != changes {
				p.mu.Unlock()
				continue
			}
			if h.mayDial() {
				h.open++
				h.dialing++
				p.mu.Unlock()
				return p.dialNew(ctx, h)
			}
		}
		turn := h.enqueue(woken)
		p.mu.Unlock()
		select {
		case <-turn:
			woken = true
		case <-ctx.Done():
			p.mu.Lock()
			h.leave(turn)
			p.mu.Unlock()
			return nil, connectError(ctx, key, PhaseWait, context.Cause(ctx))
		}
	}
}

// share takes a place on an HTTP/2 connection, newest first. It is called, and
// returns, with Pool.mu held, and lets go of it in between.
func (p *Pool) share(h *host) *link {
	for i := len(h.shared) - 1; i >= 0; i = min(i, len(h.shared)) - 1 {
		l := h.shared[i]
		if !l.open {
			continue
		}
		p.mu.Unlock()
		ok := l.join()
		p.mu.Lock()
		if ok {
			return l
		}
	}
	return nil
}

// dialNew opens a connection for one caller. Its place is already taken.
func (p *Pool) dialNew(ctx context.Context, h *host) (*Conn, error) {
	l, err := p.dial(ctx, h)
	if err == nil && l.wire.mux == nil {
		if reserveErr := l.cc.Reserve(); reserveErr != nil {
			err = connectError(ctx, h.key, PhaseSetup, reserveErr)
		}
	}

	p.mu.Lock()
	h.dialing--
	switch {
	case err != nil:
	case p.closed:
		err = connectError(ctx, h.key, PhaseSetup, ErrClosed)
	case l.dead:
		err = connectError(ctx, h.key, PhaseSetup, errEnded)
	case l.wire.mux != nil:
		l.counted = true
		l.users, l.pending = 1, 1
		if !l.retired {
			h.shared = append(h.shared, l)
		}
		h.single = true
	default:
		l.counted = true
		h.single = false
	}
	if err != nil {
		h.single = false // those in line need not wait for each other's failures
		h.freeSlot()
	}
	if p.multiplexes(h.key.scheme) {
		h.wakeAll() // now it is known what the host speaks, and there may be streams
	}
	p.mu.Unlock()

	if err != nil {
		if l != nil {
			l.shut()
		}
		return nil, err
	}
	return newConn(l, false), nil
}

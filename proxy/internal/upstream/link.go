package upstream

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// link is one connection of a pool, for its whole life.
type link struct {
	pool *Pool
	host *host
	wire *wire
	cc   *http.ClientConn // net/http's view of the wire: one connection, no retry loop

	// Guarded by Pool.mu, but idleLimit also belongs to who uses the connection.
	counted   bool          // it holds a place in host.open
	dead      bool          // its wire is closed
	pooled    bool          // it is in host.idle
	idleSince time.Time     // when the last use ended
	idleLimit time.Duration // HTTP/1.1: how long it may be idle

	// HTTP/2, guarded by Pool.mu.
	open    bool // the peer's SETTINGS, and so its stream limit, are known
	retired bool // it takes no new request
	users   int  // calls of Connect whose use is not over
	pending int  // of these, those that have no stream yet

	joining sync.Mutex // HTTP/2: held while a stream is sought
}

// shut closes the connection. It must not be called with Pool.mu held.
func (l *link) shut() { l.cc.Close() }

// closed is called once, when net/http or the pool closes the wire: because the
// peer closed it, because an exchange failed, because it was not wanted any more.
// It may be called with locks of net/http held.
func (l *link) closed() {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.dead = true
	if !l.counted {
		return
	}
	l.counted = false
	if l.pooled {
		l.pooled = false
		l.host.idle = without(l.host.idle, l)
	}
	l.host.shared = without(l.host.shared, l)
	l.host.freeSlot()
}

// without deletes l from list, keeping the order.
func without(list []*link, l *link) []*link {
	if i := slices.Index(list, l); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// reserve takes an HTTP/1.1 connection for one request. It is also the check that
// it is alive, as far as can be known without sending anything.
func (l *link) reserve(ctx context.Context) bool {
	return l.wire.settled(ctx) && l.cc.Reserve() == nil
}

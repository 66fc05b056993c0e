package upstream

import (
	"net/http"
	"time"
)

// An HTTP/2 connection is shared: up to the peer's limit it carries many requests.
//
// The pool counts streams itself and leaves net/http's ClientConn.Reserve alone.
// With Reserve, a limit that is lower than the reservations made before it was known
// stops a connection for good (Go 1.26.8): the first request waits for the
// reservations of others, which wait for it. Requests would time out, in doubt,
// that were never sent.

// join takes a place for one request, if the peer's limit allows one more.
func (l *link) join() bool {
	l.joining.Lock()
	defer l.joining.Unlock()
	p := l.pool
	p.mu.Lock()
	if l.dead || l.retired {
		p.mu.Unlock()
		return false
	}
	l.users++
	l.pending++
	pending := l.pending
	p.mu.Unlock()
	// net/http counts the streams there are; those to come are counted here.
	if l.cc.Available() >= pending {
		return true
	}
	l.drop(true)
	return false
}

// started notes that a request has its stream, so that net/http counts it now.
func (l *link) started() {
	l.pool.mu.Lock()
	l.pending--
	l.host.wakeOne()
	l.pool.mu.Unlock()
}

// part ends one use of the connection, and lets one waiting call look again. If
// net/http still has the stream, its state hook does so once more: not always, for
// it only tells differences between the moments at which it looked.
func (l *link) part(started bool) {
	l.drop(!started)
	l.pool.mu.Lock()
	l.host.wakeOne()
	l.pool.mu.Unlock()
}

// drop takes one use off the connection's books.
func (l *link) drop(pending bool) {
	p := l.pool
	p.mu.Lock()
	l.users--
	if pending {
		l.pending--
	}
	if l.users == 0 {
		l.idleSince = time.Now()
		if l.counted && !l.retired {
			l.host.arm(p.opts.IdleTimeout)
		}
	}
	over := l.users == 0 && l.retired
	p.mu.Unlock()
	if over {
		l.shut()
	}
}

// settle notes that net/http knows the peer's SETTINGS.
func (l *link) settle() {
	l.pool.mu.Lock()
	l.open = true
	l.host.wakeAll()
	l.pool.mu.Unlock()
}

// retire keeps the connection from being given out again. It is closed when its
// last request is over.
func (l *link) retire() {
	p := l.pool
	p.mu.Lock()
	l.retired = true
	l.host.shared = without(l.host.shared, l)
	l.host.wakeAll()
	unused := l.counted && l.users == 0
	p.mu.Unlock()
	if unused {
		// On a goroutine of its own: this may be net/http's reader, at a GOAWAY.
		go l.shut()
	}
}

// stateChanged is net/http's state hook: it lets as many waiting calls look again
// as there are free streams. It may be called with locks of net/http held.
func (l *link) stateChanged(cc *http.ClientConn) {
	p := l.pool
	p.mu.Lock()
	l.host.changes++
	waiting := len(l.host.waiters)
	p.mu.Unlock()
	if waiting == 0 {
		return
	}
	free := cc.Available()
	p.mu.Lock()
	for ; free > 0 && l.host.wakeOne(); free-- {
	}
	p.mu.Unlock()
}

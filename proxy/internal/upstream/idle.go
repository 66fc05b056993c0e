package upstream

import (
	"context"
	"time"
)

// Idle returns an idle HTTP/1.1 connection to host, reserved as by Connect, or nil
// where none is at hand. It opens nothing and waits for nobody.
func (p *Pool) Idle(scheme, host string) *Conn {
	p.mu.Lock()
	h := p.hosts[hostKey{scheme, host}]
	if p.closed || h == nil || len(h.idle) == 0 || len(h.waiters) > 0 { // those in line come first
		p.mu.Unlock()
		return nil
	}
	l, old := h.popIdle(time.Now())
	p.mu.Unlock()
	for _, o := range old {
		o.shut()
	}
	if l == nil {
		return nil
	}
	if !l.reserve(context.Background()) {
		l.shut()
		return nil
	}
	return newConn(l, true)
}

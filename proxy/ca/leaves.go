package ca

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"
)

// leaves keeps the certificates that were used most recently.
type leaves struct {
	max int

	mu      sync.Mutex
	recent  *list.List // of *leaf, the most recently used one first
	byName  map[string]*list.Element
	minting map[string]*mint
}

type leaf struct {
	name  string
	cert  *tls.Certificate
	renew time.Time // half of its time is over
}

// usable reports whether a leaf may be shown. A clock that was set back makes one
// that was good bad again.
func (l *leaf) usable(now time.Time) bool {
	return now.Before(l.renew) && !now.Before(l.cert.Leaf.NotBefore)
}

// mint is one being made. cert and err are set when done is closed.
type mint struct {
	done chan struct{}
	cert *tls.Certificate
	err  error
}

func newLeaves(max int) *leaves {
	return &leaves{max: max, recent: list.New(), byName: make(map[string]*list.Element), minting: make(map[string]*mint)}
}

// get returns the leaf of a name, made by f where there is none that is usable. For
// one name f runs once at a time; who comes meanwhile waits for it, or until ctx ends.
func (l *leaves) get(ctx context.Context, name string, now time.Time, f func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	l.mu.Lock()
	if e := l.byName[name]; e != nil {
		if f := e.Value.(*leaf); f.usable(now) {
			l.recent.MoveToFront(e)
			l.mu.Unlock()
			return f.cert, nil
		}
	}
	if m := l.minting[name]; m != nil {
		l.mu.Unlock()
		select {
		case <-m.done:
			return m.cert, m.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	m := &mint{done: make(chan struct{}), err: errors.New("making it did not end")}
	l.minting[name] = m
	l.mu.Unlock()

	defer func() { // also after a panic, or the others would wait for ever
		l.mu.Lock()
		delete(l.minting, name)
		if m.err == nil {
			l.keep(&leaf{name: name, cert: m.cert, renew: now.Add(m.cert.Leaf.NotAfter.Sub(now) / 2)})
		}
		l.mu.Unlock()
		close(m.done)
	}()
	m.cert, m.err = f()
	return m.cert, m.err
}

// keep stores a leaf in place of an older one of its name. l.mu is held.
func (l *leaves) keep(f *leaf) {
	if e := l.byName[f.name]; e != nil {
		e.Value = f
		l.recent.MoveToFront(e)
		return
	}
	l.byName[f.name] = l.recent.PushFront(f)
	for l.recent.Len() > l.max {
		last := l.recent.Back()
		delete(l.byName, l.recent.Remove(last).(*leaf).name)
	}
}

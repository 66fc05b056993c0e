package proxy

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"fencepost/keystore"
)

// waiters lets requests wait for an operation to move on, whichever process
// moves it. However many wait for one operation, one goroutine asks the ledger:
// at once when this process settles it, and otherwise ever more rarely.
type waiters struct {
	ledger *ledger
	max    int

	mu    sync.Mutex
	total int
	ops   map[keystore.ID]*watch
}

// watch is one operation that somebody waits for.
type watch struct {
	refs int
	wake chan struct{} // buffered: "look now"
	stop chan struct{}
	next chan struct{} // closed when last was replaced
	last keystore.Reply
	err  error
}

// The pauses between two looks at the ledger for one operation.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

func newWaiters(l *ledger, limit int) *waiters {
	return &waiters{ledger: l, max: limit, ops: make(map[keystore.ID]*watch)}
}

// len returns how many requests wait.
func (s *waiters) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// wake says that this process has just moved the operation.
func (s *waiters) wake(id keystore.ID) {
	s.mu.Lock()
	w := s.ops[id]
	s.mu.Unlock()
	if w != nil {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// until waits until done accepts the operation as it stands, or ctx ends, and
// returns the newest reply it saw. ok is false when it never saw one: too many
// wait already, or ctx ended before the ledger answered.
func (s *waiters) until(ctx context.Context, id keystore.ID, done func(*keystore.Reply) bool) (rep keystore.Reply, ok bool) {
	s.mu.Lock()
	if s.total >= s.max {
		s.mu.Unlock()
		return rep, false
	}
	s.total++
	w := s.ops[id]
	if w == nil {
		w = &watch{wake: make(chan struct{}, 1), stop: make(chan struct{}), next: make(chan struct{})}
		s.ops[id] = w
		go s.look(id, w)
	}
	w.refs++
	next := w.next
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if w.refs--; w.refs == 0 {
			delete(s.ops, id)
			close(w.stop)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return rep, ok
		case <-next:
		}
		s.mu.Lock()
		last, err := w.last, w.err
		next = w.next
		s.mu.Unlock()
		if err == nil {
			rep, ok = last, true
			if done(&rep) {
				return rep, true
			}
		}
	}
}

// look asks the ledger for id until nobody waits for it any more.
func (s *waiters) look(id keystore.ID, w *watch) {
	pause := firstLook
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-w.wake:
		case <-t.C:
			pause = min(pause*3/2, lastLook)
		}
		rep, err := s.ledger.get(context.Background(), id)
		s.mu.Lock()
		w.last, w.err = rep, err
		close(w.next)
		w.next = make(chan struct{})
		s.mu.Unlock()
		t.Reset(pause/2 + rand.N(pause))
	}
}

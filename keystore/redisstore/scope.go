package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"fencepost/keystore"
)

// scope is what this process knows of one scope: its keys, and how far its
// counters have been seen.
type scope struct {
	name string
	// The keys, boxed once: a command's arguments are interfaces.
	meta, states, due any
	// ops and leases begin the names of operations and leases.
	ops, leases string
	// founded says that the ledger has the scope, so that its meta has a
	// generation; registered that this was asked since a server last changed.
	founded, registered atomic.Bool
	// heir is the generation it had before an acknowledgement, until it is known
	// that it has the new one.
	heir atomic.Pointer[string]

	mu   sync.Mutex
	seen memory
}

// memory is how far a scope's counters have been seen; see rollback.go.
type memory struct {
	n, i, ack int64
}

func (s *Store) newScope(name string) *scope {
	tag := s.opt.Prefix + ":{" + name + "}:"
	return &scope{
		name: name, meta: tag + "meta", states: tag + "states", due: tag + "due",
		ops: tag + "o:", leases: tag + "l:",
	}
}

// scope returns what is known of a scope, nothing at first.
func (s *Store) scope(name string) (*scope, error) {
	if v, ok := s.scopes.Load(name); ok {
		return v.(*scope), nil
	}
	if !scopeForm.MatchString(name) {
		return nil, fmt.Errorf("redisstore: scope %q: use 1 to 64 of A-Z a-z 0-9 . _ -: %w", name, keystore.ErrNotWritten)
	}
	v, _ := s.scopes.LoadOrStore(strings.Clone(name), s.newScope(name))
	return v.(*scope), nil
}

// known returns the scopes that this process has used.
func (s *Store) known() []*scope {
	var all []*scope
	s.scopes.Range(func(_, v any) bool {
		all = append(all, v.(*scope))
		return true
	})
	return all
}

// callers returns them without those of the probes.
func (s *Store) callers() []*scope {
	return slices.DeleteFunc(s.known(), func(sc *scope) bool { return strings.HasPrefix(sc.name, probePrefix) })
}

func (sc *scope) remembers() memory {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.seen
}

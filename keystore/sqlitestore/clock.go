package sqlitestore

import (
	"sync/atomic"

	"fencepost/keystore"
)

// clock is the wall clock, except that it never goes back, also not over a
// restart: what was written or answered by a later time stays in the past.
type clock struct {
	last  atomic.Int64
	saved keystore.Instant // what the file knows; the writer's
}

// clockStep is by how much the clock in the file may lag, in milliseconds. It
// is what can be lost of the clock when the wall clock is set back during a
// restart after a crash; records and leases are always covered.
const clockStep = 1000

// now is the store's clock.
func (s *Store) now() keystore.Instant {
	t := int64(keystore.InstantOf(s.opts.Now()))
	for {
		last := s.clock.last.Load()
		if t <= last {
			return keystore.Instant(last)
		}
		if s.clock.last.CompareAndSwap(last, t) {
			return keystore.Instant(t)
		}
	}
}

// loadClock starts the clock no earlier than anything in the file.
func (s *Store) loadClock(c *conn) error {
	newest, err := c.one("SELECT now FROM clock")
	if err != nil {
		return err
	}
	s.clock.saved = keystore.Instant(newest)
	// One descent for each state; together they would walk the whole index.
	for _, state := range []string{"1", "2", "3", "4", "5"} {
		t, err := c.one("SELECT max(updated) FROM ops INDEXED BY ops_by_state WHERE state = " + state)
		if err != nil {
			return err
		}
		newest = max(newest, t)
	}
	s.clock.last.Store(newest)
	return nil
}

package sqlitestore

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
)

// movable is a wall clock that a test moves.
type movable struct{ ahead atomic.Int64 }

func (m *movable) now() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) }

var clocks = make(map[string]*movable)

func open(t *testing.T, path string, clock *movable) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: path, Now: clock.now, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConforms(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(t *testing.T) keystore.Store {
			path := filepath.Join(t.TempDir(), "ledger with ? and % and é.db")
			clocks[path] = &movable{}
			return open(t, path, clocks[path])
		},
		Reopen: func(t *testing.T, s keystore.Store) keystore.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			path := s.(*Store).opts.Path
			return open(t, path, clocks[path])
		},
		Advance: func(_ *testing.T, s keystore.Store, d time.Duration) {
			clocks[s.(*Store).opts.Path].ahead.Add(int64(d))
		},
	})
}

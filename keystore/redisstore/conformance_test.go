package redisstore

import (
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"

	"sync/atomic"
)

// clocks holds how far the clock of a store was moved.
type clocks struct {
	byStore map[keystore.Store]*atomic.Int64
}

// harness runs the suite on the servers at url: every law has a prefix of its own.
func harness(url string, restart func(t *testing.T), change ...func(*Options)) storetest.Harness {
	c := &clocks{byStore: map[keystore.Store]*atomic.Int64{}}
	prefixes := map[keystore.Store]string{}
	start := func(t *testing.T, prefix string) keystore.Store {
		off := new(atomic.Int64)
		s := open(t, url, append(change, func(o *Options) {
			o.Prefix = prefix
			o.clock = off.Load
		})...)
		c.byStore[s], prefixes[s] = off, prefix
		return s
	}
	return storetest.Harness{
		Open: func(t *testing.T) keystore.Store { return start(t, unique("fencepost")) },
		Reopen: func(t *testing.T, s keystore.Store) keystore.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if restart != nil {
				restart(t)
			}
			return start(t, prefixes[s])
		},
		Second:  func(t *testing.T, s keystore.Store) keystore.Store { return start(t, prefixes[s]) },
		Advance: func(_ *testing.T, s keystore.Store, d time.Duration) { c.byStore[s].Add(d.Milliseconds()) },
	}
}

func TestConformsOnOneServer(t *testing.T) {
	srv := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	storetest.Run(t, harness(srv.url(), func(t *testing.T) {
		srv.kill()
		srv.start()
	}))
}

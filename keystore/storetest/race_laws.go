package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"fencepost/keystore"
)

// together runs n functions at once and waits for them.
func together(n int, f func(i int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			f(i)
		})
	}
	start.Done()
	done.Wait()
}

func raceLaws() []law {
	return []law{
		{"of many inserts at once exactly one is written", "100 duplicates, one effect", func(t *testing.T, h Harness) {
			s := h.Open(t)
			var mu sync.Mutex
			wins, ops := 0, map[string]bool{}
			together(64, func(int) {
				r, err := s.Insert(ctx(t), must(t, nil, reserveEvent(id("a", "k1")), 0))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				ops[r.Record.Operation] = true
				if r.Result == keystore.Written {
					wins++
				}
			})
			if wins != 1 || len(ops) != 1 {
				t.Fatalf("%d inserts won, %d operations seen", wins, len(ops))
			}
		}},
		{"of many swaps at once exactly one is written", "two workers, one version, one claim", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := reserved(t, s, id("a", "k1"))
			h.Advance(t, s, time.Minute)
			now := get(t, s, r.ID).Now
			var mu sync.Mutex
			wins := 0
			together(32, func(i int) {
				w := must(t, &r, keystore.Event{Kind: keystore.TakeOver, Writer: unique("w"), By: fmt.Sprint("i", i), Attempt: unique("a"), Silence: time.Minute, Keep: time.Hour}, now)
				rep, err := s.Swap(ctx(t), w)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				} else if rep.Result == keystore.Written {
					wins++
				}
			})
			if wins != 1 {
				t.Fatalf("%d take-overs won", wins)
			}
		}},
		{"many operations at once keep to themselves", "batching must not mix replies up", func(t *testing.T, h Harness) {
			s := h.Open(t)
			together(48, func(i int) {
				k := id([]string{"a", "b", "c"}[i%3], fmt.Sprintf("k%d", i))
				body := fmt.Sprintf("body of %d", i)
				rep, err := s.Insert(ctx(t), must(t, nil, reserveEvent(k), 0))
				for _, ev := range []func(keystore.Record) keystore.Event{markEvent, func(r keystore.Record) keystore.Event { return completeEvent(r, body) }} {
					if err != nil || rep.Result != keystore.Written || rep.Record.ID != k {
						t.Errorf("%v: %+v %v", k, rep, err)
						return
					}
					r := rep.Record
					rep, err = s.Swap(ctx(t), must(t, &r, ev(r), 0))
				}
				g, err := s.Get(ctx(t), k)
				if err != nil || g.Record.ID != k || string(g.Body) != body || g.Record.Version != 3 {
					t.Errorf("%v reads %q in version %d: %v", k, g.Body, g.Record.Version, err)
				}
			})
		}},
	}
}

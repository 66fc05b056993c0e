package storetest

import (
	"testing"
	"time"

	"fencepost/keystore"
)

// acquire takes a lease the way the lease API does.
func acquire(t *testing.T, s keystore.Store, scope, run, owner string, ttl time.Duration) keystore.Lease {
	t.Helper()
	cur, err := s.Lease(ctx(t), scope, run)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.SwapLease(ctx(t), keystore.LeaseWrite{TTL: ttl, Lease: keystore.Lease{
		Scope: scope, Run: run, Owner: owner, Token: cur.Lease.Token + 1, AcquiredAt: keystore.StampNow,
		Version: cur.Lease.Version + 1, Writer: unique("lw"),
	}})
	if err != nil || r.Result != keystore.Written {
		t.Fatalf("acquire: %+v, %v", r, err)
	}
	return r.Lease
}

func leased(id keystore.ID, token uint64, external bool) keystore.Event {
	ev := reserveEvent(id)
	ev.Lease = &keystore.LeaseRef{Run: "run-1", Token: token}
	ev.ExternalLease = external
	return ev
}

func guardLaws() []law {
	return []law{
		{"a live lease lets its token write", "the guard must not refuse the rightful owner", func(t *testing.T, h Harness) {
			s := h.Open(t)
			l := acquire(t, s, "a", "run-1", "w1", time.Minute)
			r := want(t, insert(t, s, must(t, nil, leased(id("a", "k1"), l.Token, false), 0)), keystore.Written).Record
			want(t, swap(t, s, must(t, &r, markEvent(r), 0)), keystore.Written)
		}},
		{"an expired lease writes nothing", "the worker paused past its lease; another may own the run", func(t *testing.T, h Harness) {
			s := h.Open(t)
			l := acquire(t, s, "a", "run-1", "w1", time.Minute)
			r := want(t, insert(t, s, must(t, nil, leased(id("a", "k1"), l.Token, false), 0)), keystore.Written).Record
			h.Advance(t, s, 2*time.Minute)
			same(t, want(t, swap(t, s, must(t, &r, markEvent(r), 0)), keystore.LeaseLost).Record, r)
			same(t, get(t, s, r.ID).Record, r)
			want(t, insert(t, s, must(t, nil, leased(id("a", "k2"), l.Token, false), 0)), keystore.LeaseLost)
			want(t, get(t, s, id("a", "k2")), keystore.NotFound)
		}},
		{"a newer token shuts the older out", "token 1 pauses, token 2 acts, token 1 resumes", func(t *testing.T, h Harness) {
			s := h.Open(t)
			old := acquire(t, s, "a", "run-1", "w1", time.Minute)
			r := want(t, insert(t, s, must(t, nil, leased(id("a", "k1"), old.Token, false), 0)), keystore.Written).Record
			h.Advance(t, s, 2*time.Minute)
			acquire(t, s, "a", "run-1", "w2", time.Minute)
			want(t, swap(t, s, must(t, &r, markEvent(r), 0)), keystore.LeaseLost)
		}},
		{"a lease of another scope or run does not count", "a caller could borrow another's lease", func(t *testing.T, h Harness) {
			s := h.Open(t)
			l := acquire(t, s, "b", "run-1", "w1", time.Minute)
			acquire(t, s, "a", "run-2", "w1", time.Minute)
			want(t, insert(t, s, must(t, nil, leased(id("a", "k1"), l.Token, false), 0)), keystore.LeaseLost)
		}},
		{"an existing record is shown whatever the guard says", "a stale worker may still read a replay", func(t *testing.T, h Harness) {
			s := h.Open(t)
			rec := completed(t, s, id("a", "k1"), "x")
			r := want(t, insert(t, s, must(t, nil, leased(rec.ID, 9, false), 0)), keystore.Exists)
			same(t, r.Record, rec)
		}},
		{"a repeated write is recognised even when its guard has lapsed since", "it happened; saying it did not would leave an orphan", func(t *testing.T, h Harness) {
			s := h.Open(t)
			l := acquire(t, s, "a", "run-1", "w1", time.Minute)
			r := want(t, insert(t, s, must(t, nil, leased(id("a", "k1"), l.Token, false), 0)), keystore.Written).Record
			w := must(t, &r, markEvent(r), 0)
			want(t, swap(t, s, w), keystore.Written)
			h.Advance(t, s, 2*time.Minute)
			want(t, swap(t, s, w), keystore.Written)
		}},
		{"of external tokens the highest seen wins", "the lease system is the caller's; we only remember", func(t *testing.T, h Harness) {
			s := h.Open(t)
			want(t, insert(t, s, must(t, nil, leased(id("a", "k1"), 7, true), 0)), keystore.Written)
			want(t, insert(t, s, must(t, nil, leased(id("a", "k2"), 7, true), 0)), keystore.Written)
			want(t, insert(t, s, must(t, nil, leased(id("a", "k3"), 10, true), 0)), keystore.Written)
			want(t, insert(t, s, must(t, nil, leased(id("a", "k4"), 9, true), 0)), keystore.LeaseLost)
			// As numbers, not as text, and beyond what a double holds.
			const big = 1<<62 + 1
			want(t, insert(t, s, must(t, nil, leased(id("a", "k5"), big, true), 0)), keystore.Written)
			want(t, insert(t, s, must(t, nil, leased(id("a", "k6"), big-1, true), 0)), keystore.LeaseLost)
			h.Advance(t, s, 1000*time.Hour)
			want(t, insert(t, s, must(t, nil, leased(id("a", "k7"), big, true), 0)), keystore.Written)
		}},
	}
}

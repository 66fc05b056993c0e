package storetest

import (
	"testing"
	"time"

	"fencepost/keystore"
)

func swapLease(t *testing.T, s keystore.Store, w keystore.LeaseWrite, res keystore.Result) keystore.Lease {
	t.Helper()
	r, err := s.SwapLease(ctx(t), w)
	if err != nil {
		t.Fatal(err)
	}
	if r.Result != res || r.Now <= 0 {
		t.Fatalf("result %d, want %d: %+v", r.Result, res, r)
	}
	return r.Lease
}

// renewal is the next version of l with a new time to live.
func renewal(l keystore.Lease, ttl time.Duration) keystore.LeaseWrite {
	l.Version++
	l.Writer = unique("lw")
	return keystore.LeaseWrite{Lease: l, TTL: ttl, MustBeLive: true}
}

func leaseLaws() []law {
	return []law{
		{"a lease reads back as written", "its holder is told token and expiry", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r, err := s.Lease(ctx(t), "a", "run-1")
			if err != nil || r.Result != keystore.NotFound {
				t.Fatalf("%+v %v", r, err)
			}
			l := acquire(t, s, "a", "run-1", "w1", time.Minute)
			r, err = s.Lease(ctx(t), "a", "run-1")
			if err != nil || r.Result != keystore.Found || r.Lease != l {
				t.Fatalf("%+v %v want %+v", r, err, l)
			}
			if !l.Live(r.Now) || l.ExpiresAt.Sub(l.AcquiredAt) != time.Minute {
				t.Fatalf("%+v at %v", l, r.Now)
			}
		}},
		{"one of two acquisitions wins", "two holders of one token are two owners", func(t *testing.T, h Harness) {
			s := h.Open(t)
			l := keystore.Lease{Scope: "a", Run: "run-1", Owner: "w1", Token: 1, AcquiredAt: keystore.StampNow, Version: 1, Writer: unique("lw")}
			first := swapLease(t, s, keystore.LeaseWrite{Lease: l, TTL: time.Minute}, keystore.Written)
			l.Owner, l.Writer = "w2", unique("lw")
			if got := swapLease(t, s, keystore.LeaseWrite{Lease: l, TTL: time.Minute}, keystore.Conflict); got != first {
				t.Fatalf("%+v want %+v", got, first)
			}
		}},
		{"an acquisition repeated by its writer recognises itself", "a lost reply must not burn a token", func(t *testing.T, h Harness) {
			s := h.Open(t)
			w := keystore.LeaseWrite{TTL: time.Minute, Lease: keystore.Lease{Scope: "a", Run: "r", Owner: "w1", Token: 1, AcquiredAt: keystore.StampNow, Version: 1, Writer: unique("lw")}}
			first := swapLease(t, s, w, keystore.Written)
			if again := swapLease(t, s, w, keystore.Written); again != first {
				t.Fatalf("%+v want %+v", again, first)
			}
		}},
		{"a live lease is renewed by the store's clock", "a worker's clock extends nothing", func(t *testing.T, h Harness) {
			s := h.Open(t)
			l := acquire(t, s, "a", "r", "w1", time.Minute)
			h.Advance(t, s, 30*time.Second)
			n := swapLease(t, s, renewal(l, time.Minute), keystore.Written)
			if d := n.ExpiresAt.Sub(l.ExpiresAt); d < 30*time.Second || d > 40*time.Second || n.Token != l.Token {
				t.Fatalf("extended by %v: %+v", d, n)
			}
		}},
		{"an expired lease is not renewed", "what was lost may be another's", func(t *testing.T, h Harness) {
			s := h.Open(t)
			l := acquire(t, s, "a", "r", "w1", time.Minute)
			h.Advance(t, s, 2*time.Minute)
			swapLease(t, s, renewal(l, time.Minute), keystore.LeaseLost)
			if n := acquire(t, s, "a", "r", "w2", time.Minute); n.Token != l.Token+1 {
				t.Fatalf("token %d after %d", n.Token, l.Token)
			}
		}},
		{"a released lease keeps its token", "the next token must be greater", func(t *testing.T, h Harness) {
			s := h.Open(t)
			l := acquire(t, s, "a", "r", "w1", time.Minute)
			w := renewal(l, 0)
			w.Lease.Owner = ""
			swapLease(t, s, w, keystore.Written)
			r, err := s.Lease(ctx(t), "a", "r")
			if err != nil || r.Lease.Live(r.Now) || r.Lease.Token != l.Token {
				t.Fatalf("%+v %v", r, err)
			}
			want(t, insert(t, s, must(t, nil, leasedRun(id("a", "k"), "r", l.Token), 0)), keystore.LeaseLost)
		}},
		{"tokens are exact beyond 2^53", "a token rounded down lets an old owner in", func(t *testing.T, h Harness) {
			s := h.Open(t)
			const big = 1<<53 + 1
			l := swapLease(t, s, keystore.LeaseWrite{TTL: time.Minute, Lease: keystore.Lease{Scope: "a", Run: "r", Owner: "w", Token: big, AcquiredAt: keystore.StampNow, Version: 1, Writer: unique("lw")}}, keystore.Written)
			if l.Token != big {
				t.Fatalf("token %d", l.Token)
			}
			want(t, insert(t, s, must(t, nil, leasedRun(id("a", "k1"), "r", big-1), 0)), keystore.LeaseLost)
			want(t, insert(t, s, must(t, nil, leasedRun(id("a", "k2"), "r", big), 0)), keystore.Written)
		}},
	}
}

func leasedRun(id keystore.ID, run string, token uint64) keystore.Event {
	ev := reserveEvent(id)
	ev.Lease = &keystore.LeaseRef{Run: run, Token: token}
	return ev
}

package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"fencepost/keystore"
)

func lifeLaws() []law {
	return []law{
		{"a delete takes exactly the version it names", "a sweep must not take a record that came back to life", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := completed(t, s, id("a", "k1"), "x")
			if d, err := s.Delete(ctx(t), r.ID, r.Version-1); err != nil || d.Result != keystore.Conflict {
				t.Fatalf("%+v %v", d, err)
			}
			want(t, get(t, s, r.ID), keystore.Found)
			if d, err := s.Delete(ctx(t), r.ID, r.Version); err != nil || d.Result != keystore.Written {
				t.Fatalf("%+v %v", d, err)
			}
			want(t, get(t, s, r.ID), keystore.NotFound)
			equal(t, all(t, s, keystore.Query{State: keystore.Completed}))
			h.Advance(t, s, 10000*time.Hour)
			equal(t, all(t, s, keystore.Query{Due: true}))
			if d, err := s.Delete(ctx(t), r.ID, r.Version); err != nil || d.Result != keystore.NotFound {
				t.Fatalf("%+v %v", d, err)
			}
			// The key is new again, with no body of the old one.
			reserved(t, s, r.ID)
			if b := get(t, s, r.ID).Body; len(b) != 0 {
				t.Fatalf("the old body came back: %q", b)
			}
		}},
		{"everything acknowledged is there after a reopen", "a restart is how most doubts begin", func(t *testing.T, h Harness) {
			if h.Reopen == nil {
				t.Skip("nothing of this store outlives it")
			}
			s := h.Open(t)
			c, d, r := completed(t, s, id("a", "c"), "body"), dispatched(t, s, id("a", "d")), reserved(t, s, id("a", "r"))
			l := acquire(t, s, "a", "run-1", "w1", time.Minute)
			s = h.Reopen(t, s)
			same(t, want(t, get(t, s, c.ID), keystore.Found).Record, c)
			same(t, want(t, get(t, s, d.ID), keystore.Found).Record, d)
			same(t, want(t, get(t, s, r.ID), keystore.Found).Record, r)
			if b := get(t, s, c.ID).Body; string(b) != "body" {
				t.Fatalf("body %q", b)
			}
			if got, err := s.Lease(ctx(t), "a", "run-1"); err != nil || got.Lease != l {
				t.Fatalf("%+v %v", got, err)
			}
			equal(t, all(t, s, keystore.Query{State: keystore.Dispatched}), "a/d")
		}},
		{"two handles of a shared ledger see one truth", "two proxies, one effect", func(t *testing.T, h Harness) {
			if h.Second == nil {
				t.Skip("this store is exclusive")
			}
			s := h.Open(t)
			if s.Exclusive() {
				t.Fatal("a shared store says that it is exclusive")
			}
			s2 := h.Second(t, s)
			r := reserved(t, s, id("a", "k1"))
			same(t, want(t, insert(t, s2, must(t, nil, reserveEvent(r.ID), 0)), keystore.Exists).Record, r)
			d := want(t, swap(t, s2, must(t, &r, markEvent(r), 0)), keystore.Written).Record
			same(t, want(t, swap(t, s, must(t, &r, markEvent(r), 0)), keystore.Conflict).Record, d)
		}},
		{"a call under an ended context writes nothing and says so", "the caller was told 503; nothing may follow", func(t *testing.T, h Harness) {
			s := h.Open(t)
			c, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := s.Insert(c, must(t, nil, reserveEvent(id("a", "k1")), 0)); err == nil {
				t.Fatal("no error")
			} else if !errors.Is(err, keystore.ErrNotWritten) {
				t.Fatalf("%v does not say that nothing was written", err)
			}
			want(t, get(t, s, id("a", "k1")), keystore.NotFound)
		}},
		{"a closed store says that it is closed and wrote nothing", "a request in the last moment must get 503", func(t *testing.T, h Harness) {
			s := h.Open(t)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			_, err := s.Insert(ctx(t), must(t, nil, reserveEvent(id("a", "k1")), 0))
			if !errors.Is(err, keystore.ErrClosed) || !errors.Is(err, keystore.ErrNotWritten) {
				t.Fatalf("%v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatalf("a second close: %v", err)
			}
		}},
		{"a healthy store finds nothing fatal in itself", "start-up asks", func(t *testing.T, h Harness) {
			fs, err := h.Open(t).Check(ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fs {
				if f.Fatal {
					t.Errorf("fatal: %s", f.Message)
				}
			}
		}},
	}
}

package storetest

import (
	"testing"
	"time"

	"fencepost/keystore"
)

func swapLaws() []law {
	return []law{
		{"a swap makes exactly the next version", "a lost update is a lost effect", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := reserved(t, s, id("a", "k1"))
			w := must(t, &r, markEvent(r), 0)
			got := want(t, swap(t, s, w), keystore.Written)
			same(t, got.Record, w.Stamped(got.Record.UpdatedAt))
			same(t, get(t, s, r.ID).Record, got.Record)
			if got.Record.Version != 2 || got.Record.State != keystore.Dispatched || !got.Record.Expires.IsZero() {
				t.Fatalf("%+v", got.Record)
			}
		}},
		{"a swap against an old version conflicts and shows the current record", "the loser must learn what won", func(t *testing.T, h Harness) {
			s := h.Open(t)
			old := reserved(t, s, id("a", "k1"))
			cur := want(t, swap(t, s, must(t, &old, markEvent(old), 0)), keystore.Written).Record
			r := want(t, swap(t, s, must(t, &old, markEvent(old), 0)), keystore.Conflict)
			same(t, r.Record, cur)
			same(t, get(t, s, old.ID).Record, cur)
		}},
		{"a swap repeated by its writer recognises itself", "a re-run script would tell the owner that it lost to itself", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := reserved(t, s, id("a", "k1"))
			w := must(t, &r, markEvent(r), 0)
			first := want(t, swap(t, s, w), keystore.Written).Record
			h.Advance(t, s, time.Second)
			same(t, want(t, swap(t, s, w), keystore.Written).Record, first)
			if v := get(t, s, r.ID).Record.Version; v != 2 {
				t.Fatalf("version %d after a repeat", v)
			}
		}},
		{"a swap of nothing finds nothing", "a record that was forgotten must not come back without its history", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := reserved(t, s, id("a", "k1"))
			r.Key = "k2"
			want(t, swap(t, s, must(t, &r, markEvent(r), 0)), keystore.NotFound)
			want(t, get(t, s, r.ID), keystore.NotFound)
		}},
		{"a transition without a body keeps the body", "a note must not lose the response", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := completed(t, s, id("a", "k1"), "hello")
			w := must(t, &r, keystore.Event{Kind: keystore.Note, Writer: unique("w"), By: "x", Attempt: "late", Why: "late answer", Outcome: outcome(200, "")}, 0)
			want(t, swap(t, s, w), keystore.Written)
			g := get(t, s, r.ID)
			if string(g.Body) != "hello" || len(g.Record.Evidence) != 1 || g.Record.Evidence[0].At != g.Record.UpdatedAt || g.Record.Evidence[0].Status != 200 {
				t.Fatalf("body %q, evidence %+v", g.Body, g.Record.Evidence)
			}
		}},
		{"a tombstone has no body left", "retention is a promise too", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := completed(t, s, id("a", "k1"), "secret")
			h.Advance(t, s, 2*time.Hour)
			now := get(t, s, r.ID).Now
			w := must(t, &r, keystore.Event{Kind: keystore.Bury, Writer: unique("w"), By: "sweeper", Keep: 720 * time.Hour}, now)
			want(t, swap(t, s, w), keystore.Written)
			g := get(t, s, r.ID)
			if len(g.Body) != 0 || !g.Record.Tombstone || g.Record.Outcome != nil || g.Record.Expires.Sub(g.Record.UpdatedAt) != 720*time.Hour {
				t.Fatalf("body %q record %+v", g.Body, g.Record)
			}
			if b := want(t, insert(t, s, must(t, nil, reserveEvent(r.ID), 0)), keystore.Exists).Body; len(b) != 0 {
				t.Fatalf("an insert still brings %q", b)
			}
		}},
		{"instants are the store's and only grow", "a proxy with a wrong clock must not shorten a deadline", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := reserved(t, s, id("a", "k1"))
			h.Advance(t, s, 10*time.Second)
			d := want(t, swap(t, s, must(t, &r, markEvent(r), 0)), keystore.Written).Record
			if got := d.DispatchedAt.Sub(d.ReservedAt); got < 10*time.Second || got > 20*time.Second {
				t.Fatalf("dispatched %v after reserved", got)
			}
			if d.History[0].At != r.ReservedAt || d.History[1].At != d.UpdatedAt {
				t.Fatalf("history %+v", d.History)
			}
		}},
	}
}

package storetest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
)

func insertLaws() []law {
	return []law{
		{"an insert returns the record as written", "the caller builds the next version on it", func(t *testing.T, h Harness) {
			s := h.Open(t)
			w := must(t, nil, reserveEvent(id("a", "k1")), 0)
			r := want(t, insert(t, s, w), keystore.Written)
			same(t, r.Record, w.Stamped(r.Record.UpdatedAt))
			if r.Record.ReservedAt != r.Now || r.Record.Deadline.Sub(r.Now).Seconds() != 30 || r.Record.Expires.Sub(r.Now).Hours() != 24 {
				t.Fatalf("instants are not the store's: %+v at %v", r.Record, r.Now)
			}
			same(t, want(t, get(t, s, id("a", "k1")), keystore.Found).Record, r.Record)
		}},
		{"an insert may be a dispatch", "where a connection is at hand, claim and mark are one write", func(t *testing.T, h Harness) {
			s := h.Open(t)
			ev := reserveEvent(id("a", "k1"))
			ev.Kind = keystore.Dispatch
			w := must(t, nil, ev, 0)
			r := want(t, insert(t, s, w), keystore.Written)
			same(t, r.Record, w.Stamped(r.Record.UpdatedAt))
			if r.Record.State != keystore.Dispatched || !r.Record.Expires.IsZero() {
				t.Fatalf("%+v", r.Record)
			}
			same(t, want(t, get(t, s, id("a", "k1")), keystore.Found).Record, r.Record)
			same(t, want(t, insert(t, s, w), keystore.Written).Record, r.Record)
			equal(t, all(t, s, keystore.Query{State: keystore.Dispatched}), "a/k1")
			equal(t, all(t, s, keystore.Query{State: keystore.Reserved}))
			h.Advance(t, s, 10000*time.Hour)
			equal(t, all(t, s, keystore.Query{Due: true}))
			rec := r.Record
			want(t, swap(t, s, must(t, &rec, completeEvent(rec, "x"), 0)), keystore.Written)
		}},
		{"a second insert finds the first", "two callers with one key must not both own it", func(t *testing.T, h Harness) {
			s := h.Open(t)
			first := reserved(t, s, id("a", "k1"))
			r := want(t, insert(t, s, must(t, nil, reserveEvent(id("a", "k1")), 0)), keystore.Exists)
			same(t, r.Record, first)
		}},
		{"an insert repeated by its writer recognises itself", "the reply of the first try was lost; the owner must not lose its own claim", func(t *testing.T, h Harness) {
			s := h.Open(t)
			w := must(t, nil, reserveEvent(id("a", "k1")), 0)
			first := want(t, insert(t, s, w), keystore.Written).Record
			same(t, want(t, insert(t, s, w), keystore.Written).Record, first)
		}},
		{"scopes do not see each other", "two callers with one key are two operations", func(t *testing.T, h Harness) {
			s := h.Open(t)
			a, b := reserved(t, s, id("a", "k1")), reserved(t, s, id("b", "k1"))
			if a.Operation == b.Operation {
				t.Fatal("one operation for two scopes")
			}
			want(t, get(t, s, id("c", "k1")), keystore.NotFound)
		}},
		{"keys are compared byte by byte", "a key that collides with another gets the other's answer", func(t *testing.T, h Harness) {
			s := h.Open(t)
			keys := []string{"k", "K", "k%", "k_", "k*", "k?", "{k}", "k:1", "k\\", "'k'", "\"k\"", "k;drop", strings.Repeat("x", 255), strings.Repeat("x", 254) + "y"}
			ops := map[string]string{}
			for _, k := range keys {
				ops[k] = reserved(t, s, id("a", k)).Operation
			}
			for _, k := range keys {
				if got := want(t, get(t, s, id("a", k)), keystore.Found).Record.Operation; got != ops[k] {
					t.Errorf("key %q reads another's record", k)
				}
			}
		}},
		{"an insert that meets a completed record brings its body", "a replay costs one round trip", func(t *testing.T, h Harness) {
			s := h.Open(t)
			body := string(bytes.Repeat([]byte{0, 1, 0xff, '\r', '\n'}, 100))
			rec := completed(t, s, id("a", "k1"), body)
			r := want(t, insert(t, s, must(t, nil, reserveEvent(id("a", "k1")), 0)), keystore.Exists)
			same(t, r.Record, rec)
			if string(r.Body) != body {
				t.Fatalf("body is %d bytes, want %d", len(r.Body), len(body))
			}
		}},
		{"a large body comes back byte for byte", "what is replayed is what was received", func(t *testing.T, h Harness) {
			s := h.Open(t)
			body := strings.Repeat("0123456789abcdef", 1<<16)
			completed(t, s, id("a", "k1"), body)
			if got := want(t, get(t, s, id("a", "k1")), keystore.Found).Body; string(got) != body {
				t.Fatalf("body differs (%d bytes, want %d)", len(got), len(body))
			}
		}},
	}
}

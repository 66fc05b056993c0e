package storetest

import (
	"fmt"
	"testing"
	"time"

	"fencepost/keystore"
)

// all pages through a query and returns the keys, failing on endless cursors.
func all(t *testing.T, s keystore.Store, q keystore.Query) []string {
	t.Helper()
	var keys []string
	for range 1000 {
		p, err := s.List(ctx(t), q)
		if err != nil {
			t.Fatal(err)
		}
		if p.Now <= 0 {
			t.Fatal("a page without the store's clock")
		}
		for _, r := range p.Records {
			keys = append(keys, r.Scope+"/"+r.Key)
		}
		if p.Next == "" {
			return keys
		}
		q.Cursor = p.Next
	}
	t.Fatal("the list never ends")
	return nil
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func listLaws() []law {
	return []law{
		{"a state lists its records, oldest first", "the operator works from the oldest", func(t *testing.T, h Harness) {
			s := h.Open(t)
			reserved(t, s, id("a", "k1"))
			for _, k := range []string{"k3", "k2", "k5"} {
				dispatched(t, s, id("a", k))
				h.Advance(t, s, time.Second)
			}
			completed(t, s, id("a", "k4"), "x")
			equal(t, all(t, s, keystore.Query{State: keystore.Dispatched}), "a/k3", "a/k2", "a/k5")
			equal(t, all(t, s, keystore.Query{State: keystore.Reserved}), "a/k1")
			equal(t, all(t, s, keystore.Query{State: keystore.Completed}), "a/k4")
			equal(t, all(t, s, keystore.Query{State: keystore.Unknown}))
		}},
		{"a record is listed in its present state only", "an index that disagrees with its record hides an effect", func(t *testing.T, h Harness) {
			s := h.Open(t)
			r := dispatched(t, s, id("a", "k1"))
			u := want(t, swap(t, s, must(t, &r, keystore.Event{Kind: keystore.Doubt, Writer: unique("w"), By: "i", Attempt: r.AttemptID, Why: "timeout"}, 0)), keystore.Written).Record
			equal(t, all(t, s, keystore.Query{State: keystore.Dispatched}))
			p, err := s.List(ctx(t), keystore.Query{State: keystore.Unknown})
			if err != nil || len(p.Records) != 1 {
				t.Fatalf("%+v %v", p, err)
			}
			same(t, p.Records[0], u)
		}},
		{"pages neither lose nor repeat", "what falls between pages is never settled", func(t *testing.T, h Harness) {
			s := h.Open(t)
			seen := map[string]int{}
			for i := range 25 {
				// Many share one millisecond: the cursor cannot be a time alone.
				dispatched(t, s, id([]string{"a", "b", "c"}[i%3], fmt.Sprintf("k%02d", i)))
			}
			for _, k := range all(t, s, keystore.Query{State: keystore.Dispatched, Limit: 4}) {
				seen[k]++
			}
			if len(seen) != 25 {
				t.Fatalf("%d of 25 seen: %v", len(seen), seen)
			}
			for k, n := range seen {
				if n != 1 {
					t.Errorf("%s seen %d times", k, n)
				}
			}
		}},
		{"a list narrows to one scope", "one caller's operations are not another's", func(t *testing.T, h Harness) {
			s := h.Open(t)
			dispatched(t, s, id("a", "k1"))
			dispatched(t, s, id("b", "k2"))
			equal(t, all(t, s, keystore.Query{State: keystore.Dispatched, Scope: "b"}), "b/k2")
			equal(t, all(t, s, keystore.Query{State: keystore.Dispatched, Scope: "z"}))
		}},
		{"a list narrows by age", "an operator asks for what is older than an hour", func(t *testing.T, h Harness) {
			s := h.Open(t)
			dispatched(t, s, id("a", "k1"))
			h.Advance(t, s, time.Minute)
			r := dispatched(t, s, id("a", "k2"))
			equal(t, all(t, s, keystore.Query{State: keystore.Dispatched, Before: r.UpdatedAt.Add(-time.Second)}), "a/k1")
		}},
		{"what is due is what has expired, and nothing that never expires", "a sweep that takes an UNKNOWN forgets a doubt", func(t *testing.T, h Harness) {
			s := h.Open(t)
			completed(t, s, id("a", "done"), "x") // one hour
			reserved(t, s, id("a", "reserved"))   // a day
			dispatched(t, s, id("a", "dispatched"))
			r := dispatched(t, s, id("a", "unknown"))
			want(t, swap(t, s, must(t, &r, keystore.Event{Kind: keystore.Doubt, Writer: unique("w"), By: "i", Attempt: r.AttemptID}, 0)), keystore.Written)
			equal(t, all(t, s, keystore.Query{Due: true}))
			h.Advance(t, s, 2*time.Hour)
			equal(t, all(t, s, keystore.Query{Due: true}), "a/done")
			h.Advance(t, s, 10000*time.Hour)
			equal(t, all(t, s, keystore.Query{Due: true, Limit: 1}), "a/done", "a/reserved")
		}},
	}
}

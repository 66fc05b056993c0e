package sqlitestore

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
)

// One row that cannot be read is an error for its key, is logged and left out
// of lists, and hides no other.
func TestDamagedRow(t *testing.T) {
	for name, damage := range map[string]string{
		"record": "rec = x'7b22'",
		"cut":    "rec = substr(rec, 1, length(rec) - 3)",
		"empty":  "rec = x''",
		"state":  "state = state + 256",
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			s := openWith(t, Options{Path: newPath(t), Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			var recs []keystore.Record
			for i := range 5 {
				recs = append(recs, flow(t, s, keystore.ID{Scope: "a", Key: fmt.Sprint("k", i)}, body200))
			}
			bad := recs[2].ID
			if err := other(t, s.opts.Path).exec("UPDATE ops SET " + damage + " WHERE key = 'k2'"); err != nil {
				t.Fatal(err)
			}
			_, err := s.Get(t.Context(), bad)
			nothingWritten(t, err)
			says(t, err, "k2")
			for range 2 { // by the writer, and by a reader that knows it
				_, err = s.Insert(t.Context(), reservation(t, bad))
				nothingWritten(t, err)
				s.known = known{}
			}
			w := mark(t, keystore.Record{ID: bad, State: keystore.Reserved, Version: 7, AttemptID: "x", Owner: "o"})
			_, err = s.Swap(t.Context(), w)
			nothingWritten(t, err)

			commits := s.writer.commits.Load()
			done := make(chan struct{})
			for i := range 20 {
				go func() {
					defer func() { done <- struct{}{} }()
					if i%2 == 0 {
						_, _ = s.Insert(t.Context(), reservation(t, bad))
						return
					}
					reserve(t, s, keystore.ID{Scope: "b", Key: randomKey()})
				}()
			}
			for range 20 {
				<-done
			}
			if n := s.writer.commits.Load() - commits; n > 20 {
				t.Errorf("%d commits for 20 calls", n)
			}

			var keys []string
			for q := (keystore.Query{State: keystore.Completed, Limit: 2}); ; {
				p, err := s.List(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range p.Records {
					keys = append(keys, r.Key)
				}
				if q.Cursor = p.Next; p.Next == "" {
					break
				}
			}
			if fmt.Sprint(keys) != "[k0 k1 k3 k4]" {
				t.Errorf("listed %v", keys)
			}
			if name != "state" && !strings.Contains(logged.String(), "k2") {
				t.Errorf("nobody was told: %s", logged.String())
			}
			// It can still be removed.
			if rep, err := s.Delete(t.Context(), bad, 3); err != nil || rep.Result != keystore.Written {
				t.Errorf("delete: %d %v", rep.Result, err)
			}
			get(t, s, bad, keystore.NotFound)
		})
	}
}

// Every list runs along its index, without sorting.
func TestPlans(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t)})
	c := other(t, s.opts.Path)
	for _, scope := range []string{"", "a"} {
		for _, before := range []keystore.Instant{0, 9} {
			for _, cursor := range []string{"", "x"} {
				for _, due := range []bool{false, true} {
					q := keystore.Query{Scope: scope, Before: before, Cursor: cursor, Due: due}
					if !due {
						q.State = keystore.Completed
					}
					st, err := c.prepare("EXPLAIN QUERY PLAN " + listing(&q))
					if err != nil {
						t.Fatal(err)
					}
					var plan []string
					for {
						ok, err := st.step()
						if err != nil {
							t.Fatal(err)
						}
						if !ok {
							break
						}
						plan = append(plan, st.text(3))
					}
					st.close()
					want := "SEARCH ops USING INDEX ops_by_state (state=?"
					switch {
					case due && cursor != "":
						want = "SEARCH ops USING INDEX ops_by_expiry ((expires,scope)>(?,?) AND expires<?)"
					case due:
						want = "SEARCH ops USING INDEX ops_by_expiry (expires<?)"
					case cursor != "":
						want += " AND (updated,scope"
					}
					if len(plan) != 1 || !strings.HasPrefix(plan[0], want) {
						t.Errorf("%+v: %q, want %q", q, plan, want)
					}
				}
			}
		}
	}
}

func TestForeignCursor(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t)})
	for _, c := range []string{"%", "AAAA", "bnVsbA", "e30", "WyJ4Il0"} {
		if _, err := s.List(t.Context(), keystore.Query{State: keystore.Unknown, Cursor: c}); err != nil {
			says(t, err, "cursor")
		}
	}
}

// Tokens are unsigned, also beyond what SQLite's integers hold.
func TestHugeTokens(t *testing.T) {
	path := newPath(t)
	s := openWith(t, Options{Path: path})
	with := func(token uint64) keystore.Write {
		w := reservation(t, keystore.ID{Scope: "a", Key: randomKey()})
		w.Guard = &keystore.Guard{Run: "r", Token: token, External: true}
		return w
	}
	for i, token := range []uint64{1, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64} {
		rep, err := s.Insert(t.Context(), with(token))
		written(t, rep, err)
		rep, err = s.Insert(t.Context(), with(token-1))
		if err != nil || rep.Result != keystore.LeaseLost {
			t.Fatalf("%d: token %d after %d: result %d, %v", i, token-1, token, rep.Result, err)
		}
	}
	l, err := s.Lease(t.Context(), "a", "r")
	if err != nil || l.Lease.Token != math.MaxUint64 {
		t.Fatalf("%+v %v", l, err)
	}
}

// The clock does not go back: neither while the store is open nor over a
// restart, whether the last thing it said was a record, a lease or a refusal.
func TestClock(t *testing.T) {
	path := newPath(t)
	clock := &movable{}
	start := func() *Store { return openWith(t, Options{Path: path, Now: clock.now}) }
	s := start()
	clock.ahead.Store(int64(time.Hour))
	r := reserve(t, s, keystore.ID{Scope: "a", Key: "k"})
	clock.ahead.Store(0)
	if r2 := reserve(t, s, keystore.ID{Scope: "a", Key: "k2"}); r2.UpdatedAt < r.UpdatedAt {
		t.Fatal("the clock went back")
	}
	mustClose(t, s)
	s = start()
	if now := get(t, s, r.ID, keystore.Found).Now; now < r.UpdatedAt {
		t.Fatal("the clock went back over a restart")
	}
	clock.ahead.Store(int64(2 * time.Hour))
	l, err := s.SwapLease(t.Context(), keystore.LeaseWrite{TTL: time.Minute, Lease: keystore.Lease{Scope: "a", Run: "r", Owner: "w", Token: 1, Version: 1, Writer: "w", AcquiredAt: keystore.StampNow}})
	if err != nil || l.Result != keystore.Written {
		t.Fatal(err)
	}
	// As after a crash: no farewell.
	clock.ahead.Store(0)
	db := newPath(t)
	copyLedger(t, path, db)
	crashed := openWith(t, Options{Path: db, Now: clock.now})
	if now := crashed.now(); now < l.Now {
		t.Fatalf("the clock is %d before the lease", l.Now-now)
	}
	clock.ahead.Store(int64(3 * time.Hour))
	said := get(t, s, r.ID, keystore.Found).Now
	mustClose(t, s)
	clock.ahead.Store(0)
	if now := get(t, start(), r.ID, keystore.Found).Now; now < said {
		t.Fatal("the clock went back behind an answer")
	}
}

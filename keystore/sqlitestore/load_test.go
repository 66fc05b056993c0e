package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
)

// copyLedger copies a ledger as a crash leaves it.
func copyLedger(t testing.TB, from, to string) {
	t.Helper()
	for _, end := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + end)
		if err == nil {
			err = os.WriteFile(to+end, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Close under load: no call hangs, what was reported written is there, and what
// was refused is not.
func TestCloseUnderLoad(t *testing.T) {
	for range 6 {
		s := openWith(t, Options{Path: newPath(t)})
		var mu sync.Mutex
		there := map[keystore.ID]bool{}
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for {
					id := keystore.ID{Scope: "a", Key: randomKey()}
					rep, err := s.Insert(context.Background(), reservation(t, id))
					if err != nil && !errors.Is(err, keystore.ErrNotWritten) {
						t.Error(err)
					}
					mu.Lock()
					there[id] = err == nil && rep.Result == keystore.Written
					mu.Unlock()
					if err != nil {
						if !errors.Is(err, keystore.ErrClosed) {
							t.Error(err)
						}
						return
					}
					if _, err := s.Get(context.Background(), id); err != nil && !errors.Is(err, keystore.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		mustClose(t, s)
		wg.Wait()
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("closing took %v", d)
		}
		s = openWith(t, Options{Path: s.opts.Path})
		for id, is := range there {
			want := keystore.NotFound
			if is {
				want = keystore.Found
			}
			get(t, s, id, want)
		}
		mustClose(t, s)
	}
}

// Another program with an open write transaction: bounded, nothing written, and
// over when it is.
func TestLockedByAnotherProgram(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t), Timeout: 300 * time.Millisecond})
	c := other(t, s.opts.Path)
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			began := time.Now()
			_, err := s.Insert(t.Context(), reservation(t, keystore.ID{Scope: "a", Key: randomKey()}))
			if !errors.Is(err, keystore.ErrNotWritten) {
				t.Errorf("%v", err)
			}
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := s.Insert(ctx, reservation(t, keystore.ID{Scope: "a", Key: "k"}))
	nothingWritten(t, err)
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("the caller's deadline was ignored for %v", d)
	}
	if err := c.exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	reserve(t, s, keystore.ID{Scope: "a", Key: "k"})
	if n, err := c.one("SELECT count(*) FROM ops"); err != nil || n != 1 {
		t.Fatalf("%d records, %v", n, err)
	}
}

// A reader of another program that never ends keeps the log from being
// restarted. It costs room, not service.
func TestForgottenReader(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t)})
	c := other(t, s.opts.Path)
	if err := c.exec("BEGIN; SELECT * FROM ops"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.writer.long.Store(true)
		began := time.Now()
		reserve(t, s, keystore.ID{Scope: "a", Key: randomKey()})
		if d := time.Since(began); d > 15*time.Second {
			t.Errorf("a write took %v", d)
		}
	}
}

// A caller that leaves takes its slices along.
func TestCallersSlicesAreTheirOwn(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t)})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for range 20 {
				id := keystore.ID{Scope: "a", Key: randomKey()}
				rep, err := s.Insert(context.Background(), reservation(t, id))
				r := written(t, rep, err)
				rep, err = s.Swap(context.Background(), mark(t, r))
				r = written(t, rep, err)
				body := []byte(strings.Repeat("x", 300))
				w := complete(t, r, body, time.Hour)
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
				_, _ = s.Swap(ctx, w)
				cancel()
				for k := range body {
					body[k] = 'y'
				}
				w.Record.Outcome.Status = 500
				w.Record.History[0].Why = "changed"
				if g := get(t, s, id, keystore.Found); g.Record.State == keystore.Completed && string(g.Body) != strings.Repeat("x", 300) {
					t.Errorf("the body changed: %q", g.Body)
				}
			}
		})
	}
	wg.Wait()
}

// fill writes n completed records that are due, quickly; the model is not.
func fill(t testing.TB, s *Store, n int) {
	t.Helper()
	flow(t, s, keystore.ID{Scope: "bulk", Key: "model"}, body200)
	c := other(t, s.opts.Path)
	c.busy(10 * time.Second)
	if err := c.exec(fmt.Sprintf(`BEGIN IMMEDIATE;
		WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO ops (scope, key, version, writer, state, updated, deadline, expires, rec)
			SELECT 'bulk', printf('%%08d', i), version, writer, state, updated, deadline, updated, rec FROM n, ops WHERE key = 'model';
		INSERT OR IGNORE INTO bodies (op, body) SELECT id, randomblob(200) FROM ops WHERE scope = 'bulk';
		COMMIT`, n)); err != nil {
		t.Fatal(err)
	}
}

// The limits are generous: the machine may be busy.
func TestHundredThousandRecords(t *testing.T) {
	n := 100_000
	if raceOn {
		n = 4000
	}
	s := openWith(t, Options{Path: newPath(t)})
	fill(t, s, n)
	mustClose(t, s)
	began := time.Now()
	s = openWith(t, Options{Path: s.opts.Path})
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("opening took %v", d)
	}
	r := reserve(t, s, keystore.ID{Scope: "a", Key: "rare"})
	for _, q := range []keystore.Query{{State: keystore.Completed, Limit: 1000}, {Due: true, Limit: 1000}, {State: keystore.Completed, Scope: "bulk", Limit: 1000, Cursor: cursor{At: 1}.encode()}} {
		began := time.Now()
		p, err := s.List(t.Context(), q)
		if err != nil || len(p.Records) != 1000 || p.Next == "" {
			t.Fatalf("%d records: %v", len(p.Records), err)
		}
		if d := time.Since(began); d > 15*time.Second {
			t.Errorf("a page of %+v took %v", q, d)
		}
	}
	// A scope that has nothing here: only the index is walked.
	began = time.Now()
	if p, err := s.List(t.Context(), keystore.Query{State: keystore.Completed, Scope: r.Scope}); err != nil || len(p.Records) != 0 {
		t.Fatalf("%+v %v", p, err)
	}
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("an empty page took %v", d)
	}
	// The time of a list is bounded, whatever it does.
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := s.List(ctx, keystore.Query{State: keystore.Completed, Scope: "zz"})
	if err != nil {
		nothingWritten(t, err)
	}
	get(t, s, r.ID, keystore.Found)
}

// Sweeping a large backlog leaves the writers their turn.
func TestSweepBesideWriters(t *testing.T) {
	const bound = 15 * time.Second
	n := 20_000
	if testing.Short() || raceOn {
		n = 1500
	}
	s := openWith(t, Options{Path: newPath(t), Timeout: 30 * time.Second})
	fill(t, s, n)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var slowest atomic.Int64
	var flows atomic.Int64
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				reserve(t, s, keystore.ID{Scope: "a", Key: randomKey()})
				flows.Add(1)
				if d := int64(time.Since(began)); d > slowest.Load() {
					slowest.Store(d)
				}
			}
		})
	}
	swept := 0
	for {
		p, err := s.List(t.Context(), keystore.Query{Due: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Records) == 0 {
			break
		}
		work := make(chan keystore.Record)
		var sweepers sync.WaitGroup
		for range 32 {
			sweepers.Go(func() {
				for r := range work {
					if rep, err := s.Delete(t.Context(), r.ID, r.Version); err != nil || rep.Result != keystore.Written {
						t.Errorf("%d %v", rep.Result, err)
					}
				}
			})
		}
		for _, r := range p.Records {
			work <- r
		}
		close(work)
		sweepers.Wait()
		swept += len(p.Records)
	}
	close(stop)
	wg.Wait()
	if swept != n {
		t.Errorf("%d of %d were swept", swept, n)
	}
	if d := time.Duration(slowest.Load()); d > bound {
		t.Errorf("a write waited %v", d)
	}
	t.Logf("%d writes beside %d deletes, the slowest took %v", flows.Load(), swept, time.Duration(slowest.Load()))
	mustClose(t, s)
	sound(t, s.opts.Path)
}

// Under steady load the log stays bounded.
func TestLogStaysBounded(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t), Timeout: 30 * time.Second})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					flow(t, s, keystore.ID{Scope: "a", Key: randomKey()}, []byte(strings.Repeat("x", 4000)))
				}
			}
		})
	}
	// Readers go on while the log is restarted under them.
	r := flow(t, s, keystore.ID{Scope: "a", Key: "fixed"}, body200)
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if g := get(t, s, r.ID, keystore.Found); g.Record.Version != 3 || string(g.Body) != string(body200) {
					t.Errorf("read %+v", g)
				}
				if rep, err := s.Insert(t.Context(), reservation(t, r.ID)); err != nil || rep.Result != keystore.Exists || string(rep.Body) != string(body200) {
					t.Errorf("replayed %+v: %v", rep, err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	// Enough for several times the bound on a machine that is not starved.
	var most, grown int64
	for range 30 {
		time.Sleep(100 * time.Millisecond)
		fi, err := os.Stat(s.opts.Path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, fi.Size())
	}
	close(stop)
	wg.Wait()
	if fi, err := os.Stat(s.opts.Path); err == nil {
		grown = fi.Size()
	}
	t.Logf("the log grew to %d MiB, the file to %d MiB", most>>20, grown>>20)
	if most > 4*restartPages*4096 {
		t.Errorf("the log grew to %d MiB", most>>20)
	}
	mustClose(t, s)
	if fi, err := os.Stat(s.opts.Path + "-wal"); err == nil && fi.Size() > 0 {
		t.Errorf("%d bytes of log are left after a close", fi.Size())
	}
}

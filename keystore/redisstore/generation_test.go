package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
)

// refusedUnwritten is an insert that must not lead to a send.
func refusedUnwritten(t *testing.T, s *Store, scope, key string) {
	t.Helper()
	r, err := s.Insert(ctx(t), reserveWrite(scope, key))
	if !errors.Is(err, keystore.ErrRolledBack) || !errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("insert of %s/%s, which the ledger forgot: result %d, %v", scope, key, r.Result, err)
	}
}

// met waits until a store knows the ledger, as it does soon after Open.
func met(t *testing.T, stores ...*Store) {
	t.Helper()
	for _, s := range stores {
		eventually(t, "the first contact", func() bool { gen, _ := s.identity(); return gen != "" })
		s.settled(t)
	}
}

func TestAFlushIsSeenByAProcessThatNeverUsedTheScope(t *testing.T) {
	for name, used := range map[string]string{"no scope used": "", "another scope used": "b", "this scope used": "a"} {
		t.Run(name, func(t *testing.T) {
			srv := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
			a, b := open(t, srv.url()), open(t, srv.url())
			met(t, a, b)
			complete(t, a, "a", "k", "x")
			if used != "" {
				complete(t, b, used, "warm", "x")
			}
			srv.do("flushall")
			refusedUnwritten(t, b, "a", "k")
			if n := srv.do("exists", "fencepost:{a}:o:k").(int64); n != 0 {
				t.Fatal("a refused insert wrote its record")
			}
			eventually(t, "the ledger to be told", func() bool { return srv.do("hget", "fencepost:state", "bad") != nil })
			refusedUnwritten(t, a, "a", "k")
			refusedUnwritten(t, open(t, srv.url()), "new", "k")

			if err := b.AcknowledgeRollback(ctx(t)); err != nil {
				t.Fatal(err)
			}
			for i, s := range []*Store{a, b, open(t, srv.url())} {
				complete(t, s, "a", fmt.Sprint("after-", i), "x")
				complete(t, s, fmt.Sprint("new-", i), "k", "x")
				if fs, err := s.Check(ctx(t)); err != nil || len(fs) > 0 && fs[0].Fatal {
					t.Fatalf("store %d: %+v %v", i, fs, err)
				}
			}
		})
	}
}

// A mark alone is refused, too, and a result is still recorded.
func TestAMarkOfAnotherGenerationIsRefused(t *testing.T) {
	srv := startServer(t)
	a, b := open(t, srv.url()), open(t, srv.url())
	met(t, a, b)
	r := mustInsert(t, a, reserveWrite("a", "k")).Record
	marked := mustSwap(t, a, markWrite(mustInsert(t, a, reserveWrite("a", "k2")).Record)).Record
	srv.do("hset", "fencepost:{a}:meta", "gen", "of-another-ledger")
	if _, err := b.Swap(ctx(t), markWrite(r)); !errors.Is(err, keystore.ErrRolledBack) || !errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("a mark: %v", err)
	}
	mustSwap(t, b, completeWrite(marked, "y"))
}

func TestAnIdleProcessLearnsOfAnAcknowledgementByItsNextSend(t *testing.T) {
	srv := startServer(t)
	a, b := open(t, srv.url()), open(t, srv.url())
	met(t, a, b)
	complete(t, a, "a", "k", "x")
	complete(t, b, "a", "k2", "x")
	old, _ := b.identity()
	if err := a.AcknowledgeRollback(ctx(t)); err != nil { // also where nothing was wrong
		t.Fatal(err)
	}
	complete(t, b, "a", "k3", "x")
	complete(t, b, "b", "k3", "x")
	now, _ := b.identity()
	if want, _ := a.identity(); now == old || now != want || alarmed(a) || alarmed(b) {
		t.Fatalf("generation %q, then %q, want %q; alarms %v %v", old, now, want, alarmed(a), alarmed(b))
	}
}

func TestManyWhoOpenAnEmptyLedgerAgreeOnItsGeneration(t *testing.T) {
	srv := startServer(t)
	for round := range 5 {
		prefix := unique("f")
		stores := make([]*Store, 4)
		var wg sync.WaitGroup
		for i := range stores {
			wg.Go(func() {
				s := open(t, srv.url(), func(o *Options) { o.Prefix = prefix })
				stores[i] = s
				complete(t, s, "a", fmt.Sprint("k", i), "x")
			})
		}
		wg.Wait()
		gen, _ := stores[0].identity()
		for i, s := range stores {
			if g, _ := s.identity(); g != gen || gen == "" || alarmed(s) {
				t.Fatalf("round %d: store %d has generation %q, another %q; alarm %+v", round, i, g, gen, s.alarm.Load())
			}
		}
		if g := srv.do("hget", prefix+":{a}:meta", "gen"); g != gen {
			t.Fatalf("the scope is of %v", g)
		}
	}
}

func TestASnapshotIsSeenByAProcessThatNeverUsedTheScope(t *testing.T) {
	for _, saved := range []bool{true, false} {
		t.Run(fmt.Sprint("saved ", saved), func(t *testing.T) {
			srv := startServer(t)
			a, b := open(t, srv.url()), open(t, srv.url())
			met(t, a, b)
			complete(t, b, "b", "warm", "x")
			if saved {
				srv.do("save")
			}
			complete(t, a, "a", "k", "x")
			srv.kill()
			srv.start()
			refusedUnwritten(t, b, "a", "k")
			if n := srv.do("exists", "fencepost:{a}:o:k").(int64); n != 0 {
				t.Fatal("a refused insert wrote its record")
			}
			if err := b.AcknowledgeRollback(ctx(t)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "sends again by both", func() bool {
				_, err := a.Insert(context.Background(), reserveWrite("a", unique("k")))
				_, err2 := b.Insert(context.Background(), reserveWrite("a", unique("k")))
				return err == nil && err2 == nil
			})
		})
	}
}

func TestARestartThatSyncsEveryWriteIsNoRollback(t *testing.T) {
	srv := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	stores := []*Store{open(t, srv.url()), open(t, srv.url()), open(t, srv.url())}
	met(t, stores...)
	complete(t, stores[0], "a", "k", "x")
	var stop atomic.Bool
	var done atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				s := stores[g%2] // the third is idle
				r, err := s.Insert(context.Background(), reserveWrite(fmt.Sprint("s", i%5), fmt.Sprint(g, "-", i)))
				if err == nil {
					_, err = s.Swap(context.Background(), markWrite(r.Record))
				}
				if errors.Is(err, keystore.ErrRolledBack) {
					t.Errorf("false alarm: %v", err)
					return
				}
				if err == nil {
					done.Add(1)
				}
			}
		})
	}
	for range 3 {
		before := done.Load()
		srv.kill()
		time.Sleep(50 * time.Millisecond)
		srv.start()
		eventually(t, "sends again", func() bool { return t.Failed() || done.Load() > before+100 })
	}
	stop.Store(true)
	wg.Wait()
	if r := mustInsert(t, stores[2], reserveWrite("a", "k")); r.Result != keystore.Exists {
		t.Fatalf("result %d", r.Result)
	}
	for _, s := range stores {
		if fs, err := s.Check(ctx(t)); err != nil || alarmed(s) {
			t.Fatalf("%+v %v", fs, err)
		}
	}
}

func TestAServerThatBecameDurableIsNotTrustedForBefore(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url())
	met(t, s)
	srv.do("save")
	srv.kill()
	srv.args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	srv.start()
	refusedUnwritten(t, s, "a", "k")
}

// Flushing one node of a cluster is found wherever the state and the scopes lie.
func TestAFlushOfOneNodeOfAClusterIsARollback(t *testing.T) {
	nodes := startCluster(t)
	for i, n := range nodes {
		url, prefix := clusterURL(nodes), unique("f")
		with := func(o *Options) { o.Prefix = prefix }
		a, b := open(t, url, with), open(t, url, with)
		met(t, a, b)
		var lost []string
		for j := range 12 {
			name := fmt.Sprint("s", j)
			complete(t, a, name, "k", "x")
			sc, _ := a.scope(name)
			client, err := a.topo.node(ctx(t), sc)
			if err != nil {
				t.Fatal(err)
			}
			if client.Options().Addr == n.addr() {
				lost = append(lost, name)
			}
		}
		n.do("flushall")
		if len(lost) == 0 {
			t.Fatalf("no scope on node %d", i)
		}
		refusedUnwritten(t, b, lost[0], "k")
		for _, name := range lost {
			refusedUnwritten(t, a, name, "k")
		}
		// Told everywhere, acknowledged everywhere.
		eventually(t, "the alarm to be told", func() bool { return !a.unspread.Load() && !b.unspread.Load() })
		if err := b.AcknowledgeRollback(ctx(t)); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Store{a, b, open(t, url, with)} {
			for j := range 12 {
				complete(t, s, fmt.Sprint("s", j), unique("k"), "x")
			}
			if fs, err := s.Check(ctx(t)); err != nil || len(fs) > 0 && fs[0].Fatal {
				t.Fatalf("%+v %v", fs, err)
			}
		}
	}
}

// A word that was said before an acknowledgement, in a reply that comes after it,
// does not raise the alarm again.
func TestAWordOfBeforeTheAcknowledgementIsNotHeardAfterIt(t *testing.T) {
	srv := startServer(t)
	for _, late := range []bool{true, false} {
		s := open(t, srv.url(), func(o *Options) { o.Prefix = unique("f") })
		met(t, s)
		complete(t, s, "a", "k", "x")
		sc, err := s.scope("a")
		if err != nil {
			t.Fatal(err)
		}
		c := s.newCall(sc, lookScript, sc.meta.(string))
		c.leads = true
		c.issued = sc.remembers()
		c.gen, c.ack = s.identity()
		if late {
			s.ack.Store(c.ack + 1) // somebody acknowledged while the call was under way
		}
		err = s.judge(ctx(t), c, reply{code: "bad", bad: "said before", gen: c.gen, memory: c.issued}, false)
		if late && (err != errRenewed || alarmed(s)) {
			t.Errorf("an old word is heard again: %v, alarm %v", err, alarmed(s))
		}
		if !late && (!errors.Is(err, keystore.ErrRolledBack) || !alarmed(s)) {
			t.Errorf("a word that holds is not heard: %v, alarm %v", err, alarmed(s))
		}
	}
}

// The watch alone finds it, on every node.
func TestTheWatchFindsAFlush(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url(), func(o *Options) { o.CheckEvery = 50 * time.Millisecond })
	met(t, s)
	srv.do("flushall")
	eventually(t, "the alarm", func() bool { return alarmed(s) })
	if why := s.alarm.Load().why; !strings.Contains(why, "generation") {
		t.Fatal(why)
	}
}

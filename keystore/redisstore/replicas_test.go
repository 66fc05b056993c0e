package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
)

// follow makes r a replica of the server at host:port and waits for the link.
func follow(t testing.TB, r *server, addr string) {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	r.do("replicaof", host, port)
	eventually(t, "the replica", func() bool {
		return strings.Contains(r.do("info", "replication").(string), "master_link_status:up")
	})
}

func TestASendWaitsForReplicas(t *testing.T) {
	srv, rep := startServer(t), startServer(t)
	s := open(t, srv.url(), func(o *Options) { o.Replicas, o.Timeout, o.ReplicaTimeout = 1, time.Second, 100*time.Millisecond })

	r := mustInsert(t, s, reserveWrite("a", "k1")).Record // no send follows it at once
	_, err := s.Swap(ctx(t), markWrite(r))
	if !errors.Is(err, keystore.ErrReplicas) || errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("no replica, and a mark reports %v", err)
	}
	if g, err := s.Get(ctx(t), r.ID); err != nil || g.Record.State != keystore.Dispatched {
		t.Fatalf("%+v %v", g, err)
	}
	if fs, err := s.Check(ctx(t)); err != nil || len(fs) == 0 || !fs[0].Fatal || !strings.Contains(fs[0].Message+fs[1].Message, "0 replicas") {
		t.Fatalf("%+v %v", fs, err)
	}

	p := startProxy(t, srv.addr())
	follow(t, rep, p.addr)
	complete(t, s, "a", "k2", "x")
	if fs, err := s.Check(ctx(t)); err != nil || len(fs) > 0 && fs[0].Fatal {
		t.Fatalf("%+v %v", fs, err)
	}

	// A partition: the link stands, nothing comes through.
	p.sever(true)
	r = mustInsert(t, s, reserveWrite("a", "k3")).Record
	w := markWrite(r)
	if _, err = s.Swap(ctx(t), w); !errors.Is(err, keystore.ErrReplicas) {
		t.Fatalf("a partitioned replica, and a mark reports %v", err)
	}
	// The write repeated by hand recognises itself, and must wait as well.
	if _, err = s.Swap(ctx(t), w); !errors.Is(err, keystore.ErrReplicas) {
		t.Fatalf("a partitioned replica, and a repeated mark reports %v", err)
	}
	// What no send follows does not wait.
	mustInsert(t, s, reserveWrite("a", "k4"))
	p.sever(false)
	p.drop()
	eventually(t, "the replica to come back", func() bool {
		g, err := s.Swap(ctx(t), w)
		return err == nil && g.Result == keystore.Written
	})
}

func TestALostReplyOfAMarkWaitsAgain(t *testing.T) {
	srv, rep := startServer(t), startServer(t)
	follow(t, rep, srv.addr())
	p := startProxy(t, srv.addr())
	s := open(t, "redis://"+p.addr+"/0", func(o *Options) { o.Replicas, o.Timeout = 1, time.Second })
	complete(t, s, "a", "k0", "x")
	s.settled(t)
	r := mustInsert(t, s, reserveWrite("a", "k1")).Record
	p.arm(1, fin)
	if got := mustSwap(t, s, markWrite(r)); got.Result != keystore.Written || got.Record.Version != 2 {
		t.Fatalf("%+v", got)
	}
	if n := srv.do("hget", s.opt.Prefix+":{a}:meta", "again"); n != "1" {
		t.Fatalf("the repeat wrote nothing to wait for: %v", n)
	}
}

func TestAOFNeedsAServerThatKnowsIt(t *testing.T) {
	srv := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	_, err := Open(ctx(t), Options{URL: srv.url() + "?aof=true", Logger: quiet()})
	version := parseInfo(srv.do("info", "server").(string))["redis_version"]
	if older(version, 7, 2) {
		if err == nil || !strings.Contains(err.Error(), "7.2") {
			t.Fatalf("Redis %s: %v", version, err)
		}
		return
	}
	s := open(t, srv.url(), func(o *Options) { o.AOF = true })
	complete(t, s, "a", "k1", "x")
}

// An alarm is what the tests below look for.
func alarmed(s *Store) bool { return s.alarm.Load() != nil }

func refusesSends(t *testing.T, s *Store, old keystore.Record) {
	t.Helper()
	if _, err := s.Insert(ctx(t), reserveWrite("a", unique("new"))); !errors.Is(err, keystore.ErrRolledBack) {
		t.Fatalf("an insert after a rollback: %v", err)
	}
	if _, err := s.Insert(ctx(t), reserveWrite("other", unique("new"))); !errors.Is(err, keystore.ErrRolledBack) || !errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("an insert into another scope after a rollback: %v", err)
	}
	if _, err := s.Swap(ctx(t), markWrite(old)); !errors.Is(err, keystore.ErrRolledBack) {
		t.Fatalf("a mark after a rollback: %v", err)
	}
	fs, err := s.Check(ctx(t))
	if err != nil || len(fs) == 0 || !fs[0].Fatal || !strings.Contains(fs[0].Message, "back in time") {
		t.Fatalf("%+v %v", fs, err)
	}
}

func TestAFlushIsARollback(t *testing.T) {
	srv := startServer(t)
	s, s2 := open(t, srv.url()), open(t, srv.url())
	complete(t, s, "a", "k0", "x")
	complete(t, s2, "a", "k1", "x")
	complete(t, s2, "b", "k1", "x")
	held := mustInsert(t, s, reserveWrite("a", "k2")).Record
	s.settled(t)
	s2.settled(t)
	srv.do("flushall")

	// The very call that finds it is refused and writes nothing.
	_, err := s.Insert(ctx(t), reserveWrite("a", "k0"))
	if !errors.Is(err, keystore.ErrRolledBack) || !errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("a key that the ledger forgot: %v", err)
	}
	refusesSends(t, s, held)
	eventually(t, "the other process to be told", func() bool { return srv.do("hget", "fencepost:{a}:meta", "bad") != nil })
	if _, err := s2.Insert(ctx(t), reserveWrite("a", "k9")); !errors.Is(err, keystore.ErrRolledBack) || !errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("the other process: %v", err)
	}
	// A third that knows nothing is told, too.
	s3 := open(t, srv.url())
	if _, err := s3.Insert(ctx(t), reserveWrite("a", "k9")); !errors.Is(err, keystore.ErrRolledBack) || !errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("a new process: %v", err)
	}
	// What is sent is still recorded, and reads work.
	if _, err := s.Get(ctx(t), held.ID); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Swap(ctx(t), completeWrite(mustMarked(held), "y")); err != nil || r.Result != keystore.NotFound {
		t.Fatalf("%+v %v", r, err)
	}

	if err := s2.AcknowledgeRollback(ctx(t)); err != nil {
		t.Fatal(err)
	}
	for i, st := range []*Store{s, s2, s3} {
		complete(t, st, "a", fmt.Sprint("after-", i), "x")
		complete(t, st, "b", fmt.Sprint("after-", i), "x")
		complete(t, st, "c", fmt.Sprint("after-", i), "x")
		if fs, err := st.Check(ctx(t)); err != nil || len(fs) > 0 && fs[0].Fatal {
			t.Fatalf("store %d after the acknowledgement: %+v %v", i, fs, err)
		}
	}
	// And the next one is found again.
	srv.do("flushall")
	if _, err := s3.Insert(ctx(t), reserveWrite("c", "after-0")); !errors.Is(err, keystore.ErrRolledBack) {
		t.Fatalf("a second rollback: %v", err)
	}
}

// mustMarked is the record as if it had been marked.
func mustMarked(r keystore.Record) keystore.Record {
	w := markWrite(r)
	return w.Stamped(r.UpdatedAt)
}

func TestARestoreIsARollback(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url())
	complete(t, s, "a", "k0", "x")
	s.settled(t)
	srv.do("save")
	held := complete(t, s, "a", "k1", "x")
	srv.kill()
	srv.start() // loads the older snapshot
	eventually(t, "the watch or a call to find it", func() bool {
		_, err := s.Get(ctx(t), held.ID)
		return err == nil && alarmed(s)
	})
	if _, err := s.Insert(ctx(t), reserveWrite("a", "k1")); !errors.Is(err, keystore.ErrRolledBack) {
		t.Fatalf("a key that the ledger forgot: %v", err)
	}
}

func TestTroubleWithAConnectionMakesTheWatchLook(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url(), func(o *Options) { o.Timeout = 300 * time.Millisecond })
	complete(t, s, "a", "k0", "x")
	complete(t, s, "b", "k0", "x")
	s.settled(t)
	srv.kill()
	s.Get(ctx(t), keystore.ID{Scope: "a", Key: "k0"}) // fails
	srv.start()
	// Nobody touches b, and still it is known that b was lost.
	eventually(t, "the alarm", func() bool {
		s.Get(ctx(t), keystore.ID{Scope: "zzz", Key: "k0"})
		return alarmed(s)
	})
}

func TestWarnGoesOn(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url(), func(o *Options) { o.OnRollback = Warn })
	complete(t, s, "a", "k0", "x")
	srv.do("flushall")
	complete(t, s, "a", "k0", "x")
	fs, err := s.Check(ctx(t))
	found := false
	for _, f := range fs {
		found = found || strings.Contains(f.Message, "back in time")
	}
	if err != nil || fs[0].Fatal || !found {
		t.Fatalf("%+v %v", fs, err)
	}
	if srv.do("hget", "fencepost:{a}:meta", "bad") != nil {
		t.Fatal("a process that only warns stops the others")
	}
}

func TestCloseTakesItsCountersAlong(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url())
	complete(t, s, "a", "k0", "x")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fields := srv.do("hkeys", "fencepost:{a}:meta").([]any)
	for _, f := range fields {
		if strings.HasPrefix(f.(string), "i:") {
			t.Fatalf("left behind: %v", fields)
		}
	}
}

func TestAPromotedReplicaThatMissedWritesIsARollback(t *testing.T) {
	for _, wait := range []int{0, 1} {
		t.Run(fmt.Sprint("WAIT ", wait), func(t *testing.T) {
			primary, replica := startServer(t), startServer(t)
			p := startProxy(t, primary.addr())
			follow(t, replica, p.addr)
			front := startProxy(t, primary.addr())
			s := open(t, "redis://"+front.addr+"/0", func(o *Options) { o.Replicas, o.Timeout, o.ReplicaTimeout = wait, time.Second, 50*time.Millisecond })
			complete(t, s, "a", "k0", "x")
			s.settled(t)
			eventually(t, "the replica to catch up", func() bool {
				return replica.do("hget", "fencepost:{a}:meta", "n") == primary.do("hget", "fencepost:{a}:meta", "n")
			})
			p.sever(true)
			r := mustInsert(t, s, reserveWrite("a", "k1")).Record
			_, err := s.Swap(ctx(t), markWrite(r))
			sent := err == nil
			if sent != (wait == 0) {
				t.Fatalf("WAIT %d: mark reports %v", wait, err)
			}
			// Promotion.
			front.mu.Lock()
			front.target = replica.addr()
			front.mu.Unlock()
			primary.kill()
			replica.do("replicaof", "no", "one")
			front.drop()
			var late error
			eventually(t, "the new primary", func() bool {
				_, late = s.Insert(context.Background(), reserveWrite("a", "k1"))
				return !errors.Is(late, keystore.ErrNotWritten) || errors.Is(late, keystore.ErrRolledBack)
			})
			if !errors.Is(late, keystore.ErrRolledBack) {
				t.Fatalf("a second send of k1 would follow: %v", late)
			}
		})
	}
}

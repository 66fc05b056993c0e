package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// runs returns how many scripts the server has run.
func (s *server) runs() int {
	s.t.Helper()
	return scriptRuns(s.t, s.admin)
}

func scriptRuns(t testing.TB, c *redis.Client) int {
	t.Helper()
	text, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	_, _ = fmt.Sscanf(parseInfo(text)["cmdstat_evalsha"], "calls=%d", &n)
	return n
}

func TestALostReplyIsRepeatedOnceAndRecognised(t *testing.T) {
	srv := startServer(t)
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, srv.addr())
			s := open(t, "redis://"+p.addr+"/0", func(o *Options) { o.Timeout, o.Prefix = 400*time.Millisecond, unique("f") })
			complete(t, s, "a", "warm", "x") // loads the scripts
			s.settled(t)

			r := reserveWrite("a", "k1")
			before := srv.runs()
			p.arm(1, m)
			got := mustInsert(t, s, r)
			if got.Result != keystore.Written || got.Record.Operation != r.Record.Operation {
				t.Fatalf("the owner is told %d", got.Result)
			}
			s.settled(t)
			lookedAt := 1 // the watch looks at the scope after trouble
			if n := srv.runs() - before; n < 2 || n > 2+6+lookedAt {
				t.Fatalf("%d runs for two tries", n)
			}
			p.arm(1, m)
			got = mustSwap(t, s, markWrite(got.Record))
			if got.Result != keystore.Written || got.Record.Version != 2 {
				t.Fatalf("the owner is told %d in version %d", got.Result, got.Record.Version)
			}
			if s.alarm.Load() != nil {
				t.Fatalf("a lost reply looks like a rollback: %+v", s.alarm.Load())
			}
		})
	}
}

// settled waits until the watch has nothing to do.
func (s *Store) settled(t testing.TB) {
	t.Helper()
	eventually(t, "the watch to rest", func() bool { return s.attended.Load() != 0 && s.findings.Load() != nil })
}

func TestGoRedisRunsEachTryOnce(t *testing.T) {
	srv := startServer(t)
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, srv.addr())
			s := open(t, "redis://"+p.addr+"/0", func(o *Options) { o.Timeout, o.Prefix = 400*time.Millisecond, unique("f") })
			onceOnly(t, s, p, m, srv.runs)
		})
	}
}

// onceOnly lets every reply be lost and counts what a try that is not repeated
// runs on the server.
func onceOnly(t *testing.T, s *Store, p *faultProxy, m mode, runs func() int) {
	t.Helper()
	r := complete(t, s, "a", "k1", "x")
	if _, err := s.Delete(ctx(t), keystore.ID{Scope: "a", Key: "none"}, 1); err != nil { // loads the script
		t.Fatal(err)
	}
	s.settled(t)
	s.stop() // the watch would count too
	s.idle.Wait()
	before := runs()
	p.arm(0, m)
	_, err := s.Delete(ctx(t), r.ID, r.Version)
	if err == nil || errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("a delete whose reply is lost reports %v", err)
	}
	if n := runs() - before; n != 1 {
		t.Fatalf("one try ran %d times", n)
	}
	before = runs()
	_, err = s.Insert(ctx(t), reserveWrite("a", "k2"))
	if err == nil || errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("an insert whose replies are lost reports %v", err)
	}
	if n := runs() - before; n != 2 {
		t.Fatalf("a try and its repeat ran %d times", n)
	}
	p.disarm()
}

// A flight of many whose reply is lost is sent once, too, and each of its calls
// is in doubt.
func TestABatchWhoseReplyIsLostIsSentOnce(t *testing.T) {
	srv := startServer(t)
	p := startProxy(t, srv.addr())
	s := open(t, "redis://"+p.addr+"/0")
	var recs []keystore.Record
	for i := range 10 {
		recs = append(recs, complete(t, s, "a", fmt.Sprint("k", i), "x"))
	}
	for range 2 { // loads the scripts, and opens the connections
		if _, err := s.Delete(ctx(t), keystore.ID{Scope: "a", Key: "none"}, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(ctx(t), recs[0].ID); err != nil {
			t.Fatal(err)
		}
	}
	s.settled(t)
	s.stop()
	s.idle.Wait()
	var wg sync.WaitGroup
	for i := range flights {
		p.arm(1, hold)
		wg.Go(func() {
			if _, err := s.Get(ctx(t), recs[i].ID); err != nil {
				t.Error(err)
			}
		})
		<-p.spoiled
	}
	before := srv.runs()
	trips := s.trips.Load()
	for _, r := range recs {
		wg.Go(func() {
			if _, err := s.Delete(ctx(t), r.ID, r.Version); err == nil || errors.Is(err, keystore.ErrNotWritten) {
				t.Errorf("a delete whose reply is lost reports %v", err)
			}
		})
	}
	lane := &s.lanes(s.topo.(one).client).plain
	eventually(t, "the calls to queue", func() bool {
		lane.mu.Lock()
		defer lane.mu.Unlock()
		return len(lane.queue) == len(recs)
	})
	p.arm(0, fin)
	close(p.held)
	wg.Wait()
	if n := srv.runs() - before; n != len(recs) {
		t.Fatalf("%d calls in a flight ran %d times", len(recs), n)
	}
	if n := s.trips.Load() - trips; n != 1 {
		t.Fatalf("%d flights for calls that queued together", n)
	}
}

func TestAStoppedServerFailsClosedAndComesBack(t *testing.T) {
	srv := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	s := open(t, srv.url(), func(o *Options) { o.Timeout = time.Second })
	old := complete(t, s, "a", "k0", "body")
	srv.kill()
	for i := range 5 {
		start := time.Now()
		_, err := s.Insert(ctx(t), reserveWrite("a", fmt.Sprint("k", i+1)))
		if i > 0 && !errors.Is(err, keystore.ErrNotWritten) { // the first may meet an open connection
			t.Fatalf("%v does not say that nothing was written", err)
		}
		if err == nil || time.Since(start) > 5*time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
	}
	fs, err := s.Check(ctx(t))
	if err != nil || len(fs) == 0 || !fs[0].Fatal {
		t.Fatalf("a check of a dead server finds %v, %v", fs, err)
	}
	srv.start()
	eventually(t, "the store to work again", func() bool {
		r, err := s.Get(ctx(t), old.ID)
		return err == nil && string(r.Body) == "body"
	})
	mustInsert(t, s, reserveWrite("a", "k9")) // after NOSCRIPT, too
	for i := range 5 {
		if r, err := s.Get(ctx(t), keystore.ID{Scope: "a", Key: fmt.Sprint("k", i+1)}); err != nil || (i > 0 && r.Result != keystore.NotFound) {
			t.Fatalf("k%d: %+v %v", i+1, r, err)
		}
	}
	if s.alarm.Load() != nil {
		t.Fatalf("a durable restart looks like a rollback: %s", s.alarm.Load().why)
	}
}

func TestAFrozenServerIsBounded(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url(), func(o *Options) { o.Timeout = 300 * time.Millisecond })
	complete(t, s, "a", "k0", "x")
	srv.freeze()
	defer srv.thaw()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			start := time.Now()
			_, err := s.Insert(context.Background(), reserveWrite("a", fmt.Sprint("k", i+1)))
			if d := time.Since(start); err == nil || d > 2*time.Second {
				t.Errorf("%v after %v", err, d)
			}
		})
	}
	wg.Wait()
}

func TestScriptsAreLoadedWhereTheyAreMissing(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url())
	complete(t, s, "a", "k0", "x")
	srv.do("script", "flush")
	complete(t, s, "a", "k1", "x")

	// And in the middle of load.
	stop := make(chan struct{})
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				srv.admin.ScriptFlush(context.Background())
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				complete(t, s, "a", fmt.Sprintf("load-%d-%d", i, j), "x")
			}
		})
	}
	wg.Wait()
	close(stop)
	flusher.Wait()
}

func TestServerRefusalsSayThatNothingWasWritten(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url(), func(o *Options) { o.Timeout = 300 * time.Millisecond })
	done := complete(t, s, "a", "k0", "body")
	held := mustInsert(t, s, reserveWrite("a", "k1")).Record

	refused := func(what string) {
		t.Helper()
		if _, err := s.Insert(ctx(t), reserveWrite("a", "k2")); !errors.Is(err, keystore.ErrNotWritten) || !strings.Contains(err.Error(), what) {
			t.Fatalf("insert under %s: %v", what, err)
		}
		if _, err := s.Swap(ctx(t), markWrite(held)); !errors.Is(err, keystore.ErrNotWritten) {
			t.Fatalf("swap under %s: %v", what, err)
		}
		if r, err := s.Get(ctx(t), keystore.ID{Scope: "a", Key: "k2"}); err != nil || r.Result != keystore.NotFound {
			t.Fatalf("under %s: %+v %v", what, r, err)
		}
		if r, err := s.Get(ctx(t), held.ID); err != nil || r.Record.Version != 1 {
			t.Fatalf("under %s: %+v %v", what, r, err)
		}
		r, err := s.Insert(ctx(t), reserveWrite("a", "k0"))
		if err != nil || r.Result != keystore.Exists || string(r.Body) != "body" {
			t.Fatalf("no replay under %s: %+v %v", what, r, err)
		}
	}

	srv.do("config", "set", "maxmemory", "1")
	refused("OOM")
	if r, err := s.Delete(ctx(t), held.ID, 1); err != nil || r.Result != keystore.Written {
		t.Fatalf("a full server forgets nothing: %+v %v", r, err)
	}
	srv.do("config", "set", "maxmemory", "0")
	held = mustInsert(t, s, reserveWrite("a", "k1")).Record

	srv.do("config", "set", "min-replicas-to-write", "1")
	refused("NOREPLICAS")
	srv.do("config", "set", "min-replicas-to-write", "0")

	other := startServer(t)
	srv.do("replicaof", "127.0.0.1", fmt.Sprint(other.port))
	if _, err := s.Insert(ctx(t), reserveWrite("a", "k2")); !errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("insert on a replica: %v", err)
	}
	srv.do("replicaof", "no", "one")
	_ = done
}

func TestAReadOnlyServerIsWaitedOut(t *testing.T) {
	srv, other := startServer(t), startServer(t)
	s := open(t, srv.url())
	srv.do("replicaof", "127.0.0.1", fmt.Sprint(other.port))
	eventually(t, "the link", func() bool {
		return strings.Contains(srv.do("info", "replication").(string), "master_link_status:up")
	})
	released := make(chan error, 1)
	go func() {
		time.Sleep(100 * time.Millisecond)
		released <- srv.admin.Do(context.Background(), "replicaof", "no", "one").Err()
	}()
	mustInsert(t, s, reserveWrite("a", "k1"))
	if err := <-released; err != nil {
		t.Fatal(err)
	}
}

func TestACancelledCallLeavesNothingBehindForTheNext(t *testing.T) {
	srv := startServer(t)
	p := startProxy(t, srv.addr())
	s := open(t, "redis://"+p.addr+"/0")
	complete(t, s, "a", "k0", "old answer")
	complete(t, s, "a", "k1", "new answer")
	if _, err := s.Get(ctx(t), keystore.ID{Scope: "a", Key: "k0"}); err != nil { // loads the script
		t.Fatal(err)
	}
	for range flights {
		p.arm(1, hold)
		c, cancel := context.WithCancel(ctx(t))
		got := make(chan error, 1)
		go func() {
			_, err := s.Get(c, keystore.ID{Scope: "a", Key: "k0"})
			got <- err
		}()
		<-p.spoiled
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled call returns %v", err)
		}
	}
	close(p.held)
	for range 50 {
		r, err := s.Get(ctx(t), keystore.ID{Scope: "a", Key: "k1"})
		if err != nil || string(r.Body) != "new answer" || r.Record.Key != "k1" {
			t.Fatalf("the next caller reads %q of %q: %v", r.Body, r.Record.Key, err)
		}
	}
}

func TestOfManyEqualInsertsOverTwoStoresOneIsWritten(t *testing.T) {
	srv := startServer(t)
	stores := []*Store{open(t, srv.url()), open(t, srv.url())}
	var mu sync.Mutex
	written := 0
	var wg sync.WaitGroup
	for i := range 320 {
		wg.Go(func() {
			r, err := stores[i%2].Insert(context.Background(), reserveWrite("a", "k1"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if r.Result == keystore.Written {
				written++
			}
		})
	}
	wg.Wait()
	if written != 1 {
		t.Fatalf("%d of 320 were written", written)
	}
}

func TestADeadAddressFailsWithinTheBound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never speaks
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := open(t, "redis://u:hunter2@"+l.Addr().String()+"/0", func(o *Options) { o.Timeout = 200 * time.Millisecond })
	start := time.Now()
	_, err = s.Insert(ctx(t), reserveWrite("a", "k1"))
	if !errors.Is(err, keystore.ErrNotWritten) || strings.Contains(err.Error(), "hunter2") || time.Since(start) > 5*time.Second {
		t.Fatalf("%v after %v", err, time.Since(start))
	}
}

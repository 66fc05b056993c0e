package redisstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/keystore"
)

func finding(t *testing.T, s *Store, part string) (fatal, found bool) {
	t.Helper()
	fs, err := s.Check(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		if strings.Contains(f.Message, part) {
			return f.Fatal, true
		}
	}
	return false, false
}

func TestCheckSaysWhatIsSo(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url())
	if fatal, found := finding(t, s, "no persistence"); fatal || !found {
		t.Error("no word about a server without persistence")
	}
	srv.do("config", "set", "save", "60 1")
	if fatal, found := finding(t, s, "last snapshot"); fatal || !found {
		t.Error("no word about a server with snapshots only")
	}
	srv.do("config", "set", "appendonly", "yes")
	if fatal, found := finding(t, s, "appendfsync everysec"); fatal || !found {
		t.Error("no word about appendfsync everysec")
	}
	srv.do("config", "set", "appendfsync", "always")
	if fs, err := s.Check(ctx(t)); err != nil || len(fs) != 0 {
		t.Errorf("a server that is as it should be: %+v %v", fs, err)
	}

	other := startServer(t)
	srv.do("replicaof", "127.0.0.1", strconv.Itoa(other.port))
	if fatal, found := finding(t, s, "point the URL at the primary"); !fatal || !found {
		t.Error("a replica is no fatal finding")
	}
	srv.do("replicaof", "no", "one")
	srv.do("config", "set", "maxmemory", "1")
	if fatal, found := finding(t, s, "OOM"); !fatal || !found {
		t.Error("a full server is no fatal finding")
	}
}

func TestAServerThatMayEvictIsRefusedUntilItIsMended(t *testing.T) {
	srv := startServer(t)
	s := open(t, srv.url(), func(o *Options) { o.CheckEvery = 20 * time.Millisecond })
	complete(t, s, "a", "k0", "x")
	r := mustInsert(t, s, reserveWrite("a", "k1")).Record
	srv.do("config", "set", "maxmemory-policy", "allkeys-lru")
	if fatal, found := finding(t, s, "maxmemory-policy allkeys-lru"); !fatal || !found {
		t.Fatal("an evicting policy is no fatal finding")
	}
	srv.do("config", "set", "maxmemory-policy", "noeviction")
	if _, found := finding(t, s, "maxmemory-policy"); found {
		t.Fatal("a mended policy is still found")
	}
	mustSwap(t, s, markWrite(r))

	// Now without anybody calling Check.
	srv.do("config", "set", "maxmemory-policy", "volatile-ttl")
	eventually(t, "the background check", func() bool {
		_, err := s.Insert(ctx(t), reserveWrite("a", unique("k")))
		return errors.Is(err, ErrEvicting) && errors.Is(err, keystore.ErrNotWritten)
	})
	if fs := s.Findings(); len(fs) == 0 || !fs[0].Fatal {
		t.Fatalf("findings %+v", fs)
	}
	if _, err := s.Get(ctx(t), r.ID); err != nil {
		t.Fatal(err)
	}
	srv.do("config", "set", "maxmemory-policy", "noeviction")
	eventually(t, "sends again", func() bool {
		_, err := s.Insert(ctx(t), reserveWrite("a", unique("k")))
		return err == nil
	})
}

func TestANewStoreAsksBeforeItsFirstSend(t *testing.T) {
	srv := startServer(t)
	srv.do("config", "set", "maxmemory-policy", "allkeys-lru")
	s := open(t, srv.url())
	eventually(t, "the first look", func() bool {
		_, err := s.Insert(ctx(t), reserveWrite("a", unique("k")))
		return errors.Is(err, ErrEvicting)
	})
}

func TestOldVersionsAreToldApart(t *testing.T) {
	for v, want := range map[string]bool{"6.0.20": true, "6.2.0": false, "7.0.15": false, "5.0": true, "8.2.1": false, "": false, "valkey": false} {
		if older(v, 6, 2) != want {
			t.Errorf("%q older than 6.2: %v", v, !want)
		}
	}
	if !older("7.0.15", 7, 2) || older("7.4.0", 7, 2) || older("8.0", 7, 2) {
		t.Error("7.2 is misjudged")
	}
}

// Records and indexes agree after a random load with expiries, deletions, lost
// replies and restarts of the proxy.
func TestRecordsAndIndexesAgree(t *testing.T) {
	srv := startServer(t)
	p := startProxy(t, srv.addr())
	url := "redis://" + p.addr + "/0"
	change := func(o *Options) { o.Timeout = 500 * time.Millisecond }
	stores := []*Store{open(t, url, change), open(t, srv.url(), change)}
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				p.arm(1+rand.IntN(3), []mode{fin, rst, oneByte}[rand.IntN(3)])
			}
		}
	})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			s := stores[g%2]
			for range 150 {
				id := keystore.ID{Scope: fmt.Sprint("s", rand.IntN(3)), Key: fmt.Sprint("k", rand.IntN(20))}
				r, err := s.Get(ctx(t), id)
				if err != nil {
					continue
				}
				if r.Result == keystore.NotFound {
					_, _ = s.Insert(ctx(t), reserveWrite(id.Scope, id.Key))
					continue
				}
				switch rec := r.Record; {
				case rand.IntN(5) == 0:
					_, _ = s.Delete(ctx(t), id, rec.Version)
				case rec.State == keystore.Reserved && rec.Owner == "":
					w, no := keystore.Next(&rec, keystore.Event{Kind: keystore.TakeOver, Writer: unique("w"), By: "instance-2", Attempt: unique("a"), Silence: time.Minute, Keep: time.Hour}, r.Now, nil)
					if no == keystore.Allowed {
						_, _ = s.Swap(ctx(t), w)
					}
				case rec.State == keystore.Reserved:
					_, _ = s.Swap(ctx(t), markWrite(rec))
				case rec.State == keystore.Dispatched && rand.IntN(2) == 0:
					_, _ = s.Swap(ctx(t), completeWrite(rec, strings.Repeat("b", rand.IntN(50))))
				case rec.State == keystore.Dispatched:
					_, _ = s.Swap(ctx(t), next(rec, keystore.Event{Kind: keystore.Doubt}))
				case rec.State == keystore.Unknown:
					_, _ = s.Swap(ctx(t), next(rec, keystore.Event{Kind: keystore.Clear, Keep: time.Hour}))
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	faults.Wait()
	agree(t, srv, "fencepost")
	for _, s := range stores {
		if s.alarm.Load() != nil {
			t.Fatalf("false alarm: %s", s.alarm.Load().why)
		}
	}
}

// agree walks every key of the server.
func agree(t *testing.T, srv *server, prefix string) {
	t.Helper()
	records := 0
	want := map[string]string{}
	keys := srv.do("keys", prefix+":*").([]any)
	for _, k := range keys {
		key := k.(string)
		if strings.Contains(key, "{"+probePrefix) {
			continue // a probe comes and goes while this looks
		}
		if ttl := srv.do("pttl", key); ttl != int64(-1) {
			t.Errorf("%s has a TTL: %v", key, ttl)
		}
		tag, op, ok := strings.Cut(key, ":o:")
		if !ok {
			continue
		}
		records++
		f := srv.do("hmget", key, "version", "state", "updated", "expires", "rec").([]any)
		state, _ := strconv.ParseInt(f[1].(string), 10, 64)
		updated, _ := strconv.ParseInt(f[2].(string), 10, 64)
		want[tag+":states "+op] = strconv.FormatInt(state*stateStride+updated, 10)
		if f[3] != "0" {
			want[tag+":due "+op] = f[3].(string)
		}
	}
	got := map[string]string{}
	for _, k := range keys {
		key := k.(string)
		if strings.HasSuffix(key, ":states") || strings.HasSuffix(key, ":due") {
			v := srv.do("zrange", key, 0, -1, "withscores").([]any)
			for i := 0; i < len(v); i += 2 {
				got[key+" "+v[i].(string)] = v[i+1].(string)
			}
		}
	}
	if records == 0 {
		t.Fatal("no record was written")
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: index says %q, record %q", k, got[k], v)
		}
	}
	for k, v := range got {
		if want[k] != v {
			t.Errorf("%s: index says %q, record %q", k, v, want[k])
		}
	}
}

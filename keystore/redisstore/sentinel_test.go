package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
)

// startSentinel runs a primary, a replica and one sentinel that watches them.
func startSentinel(t *testing.T) (primary, replica *server, url string, control *redis.SentinelClient) {
	t.Helper()
	bin := binary(t, "redis-sentinel")
	primary, replica = startServer(t), startServer(t)
	follow(t, replica, primary.addr())
	port, dir := freePort(t), t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor m 127.0.0.1 %d 1\nsentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 5000\n", port, dir, primary.port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, conf)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	eventually(t, "the sentinel", func() bool { return answers(addr) })
	control = redis.NewSentinelClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { control.Close() })
	eventually(t, "the sentinel to know the replica", func() bool {
		r, err := control.Replicas(context.Background(), "m").Result()
		return err == nil && len(r) == 1 && r[0]["master-link-status"] == "ok"
	})
	return primary, replica, "redis+sentinel://" + addr + "/m/0", control
}

func TestSentinel(t *testing.T) {
	_, _, url, _ := startSentinel(t)
	storetest.Run(t, harness(url, nil))
	s := open(t, url)
	if fatal, found := finding(t, s, "not confirmed by replicas"); fatal || !found {
		t.Error("no word about a failover that forgets")
	}
}

// A planned failover under load is what loses most. With WAIT nothing that a
// send followed is lost; without, every loss is found.
func TestAPlannedFailoverLosesNothingUnseen(t *testing.T) {
	for _, replicas := range []int{0, 1} {
		t.Run(fmt.Sprint("WAIT ", replicas), func(t *testing.T) {
			_, _, url, control := startSentinel(t)
			s := open(t, url, func(o *Options) { o.Replicas = replicas })
			prime := open(t, url, func(o *Options) { o.Replicas = replicas })
			complete(t, prime, "a", "k", "x")
			s.settled(t)

			var mu sync.Mutex
			sent := map[keystore.ID]bool{}
			var stop atomic.Bool
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					for i := 0; !stop.Load(); i++ {
						id := keystore.ID{Scope: fmt.Sprint("s", g%2), Key: fmt.Sprint(g, "-", i)}
						r, err := s.Insert(context.Background(), reserveWrite(id.Scope, id.Key))
						if err != nil || r.Result != keystore.Written {
							continue
						}
						if r, err = s.Swap(context.Background(), markWrite(r.Record)); err == nil && r.Result == keystore.Written {
							mu.Lock()
							sent[id] = true
							mu.Unlock()
						}
					}
				})
			}
			count := func() int { mu.Lock(); defer mu.Unlock(); return len(sent) }
			eventually(t, "some load", func() bool { return count() > 200 })
			old, err := control.GetMasterAddrByName(context.Background(), "m").Result()
			if err != nil {
				t.Fatal(err)
			}
			if err := control.Failover(context.Background(), "m").Err(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the failover", func() bool {
				now, err := control.GetMasterAddrByName(context.Background(), "m").Result()
				return err == nil && strings.Join(now, ":") != strings.Join(old, ":")
			})
			before := count()
			eventually(t, "sends or an alarm after the failover", func() bool { return alarmed(s) || count() > before+50 })
			stop.Store(true)
			wg.Wait()

			lost := 0
			reader := open(t, url)
			for id := range sent {
				var r keystore.Reply
				eventually(t, "a read", func() bool {
					var err error
					r, err = reader.Get(context.Background(), id)
					return err == nil
				})
				if r.Result != keystore.Found || r.Record.State == keystore.Reserved {
					lost++
				}
			}
			t.Logf("%d sends, %d forgotten, alarm %v", len(sent), lost, alarmed(s))
			if replicas > 0 && lost > 0 {
				t.Errorf("%d sends were forgotten in spite of WAIT", lost)
			}
			if lost > 0 {
				for i := range 2 { // a key that was lost is not granted again
					_, err := s.Insert(ctx(t), reserveWrite(fmt.Sprint("s", i), unique("k")))
					if !errors.Is(err, keystore.ErrRolledBack) {
						t.Errorf("%d sends were forgotten and nobody noticed: %v", lost, err)
					}
				}
			}
		})
	}
}

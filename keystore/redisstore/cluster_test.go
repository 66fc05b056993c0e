package redisstore

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
)

// startCluster makes a cluster of three primaries on loopback.
func startCluster(t testing.TB) []*server {
	t.Helper()
	cli := binary(t, "redis-cli")
	var nodes []*server
	args := []string{"--cluster", "create"}
	for range 3 {
		n := startServer(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(freePort(t)), "--cluster-node-timeout", "2000")
		nodes = append(nodes, n)
		args = append(args, n.addr())
	}
	out, err := exec.Command(cli, append(args, "--cluster-replicas", "0", "--cluster-yes")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, n := range nodes {
		eventually(t, "the cluster", func() bool {
			return strings.Contains(n.do("cluster", "info").(string), "cluster_state:ok")
		})
	}
	return nodes
}

func clusterURL(nodes []*server) string {
	var hosts []string
	for _, n := range nodes {
		hosts = append(hosts, n.addr())
	}
	return "redis+cluster://" + strings.Join(hosts, ",")
}

func TestCluster(t *testing.T) {
	nodes := startCluster(t)
	url := clusterURL(nodes)
	t.Run("conforms", func(t *testing.T) { storetest.Run(t, harness(url, nil)) })

	t.Run("scopes are spread and lists merge them", func(t *testing.T) {
		s := open(t, url, func(o *Options) { o.Prefix = unique("f") })
		for i := range 30 {
			mustInsert(t, s, reserveWrite(fmt.Sprint("scope-", i), "k"))
		}
		for _, n := range nodes {
			if keys := n.do("dbsize").(int64); keys == 0 {
				t.Errorf("%s holds nothing", n.addr())
			}
		}
		seen := map[string]bool{}
		q := keystore.Query{State: keystore.Reserved, Limit: 7}
		for {
			p, err := s.List(ctx(t), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range p.Records {
				if seen[r.Scope] {
					t.Errorf("%s twice", r.Scope)
				}
				seen[r.Scope] = true
			}
			if q.Cursor = p.Next; q.Cursor == "" {
				break
			}
		}
		if len(seen) != 30 {
			t.Fatalf("%d of 30 listed", len(seen))
		}
		if fs, err := s.Check(ctx(t)); err != nil || len(fs) > 0 && fs[0].Fatal {
			t.Fatalf("%v %v", fs, err)
		}
		s.Check(ctx(t))
		if n := len(s.probes(ctx(t), mastersOf(t, s))); n != 3 {
			t.Fatalf("%d of 3 primaries are probed", n)
		}
	})

	t.Run("each try runs once", func(t *testing.T) {
		proxies := map[string]*faultProxy{}
		for _, n := range nodes {
			proxies[n.addr()] = startProxy(t, n.addr())
		}
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, proxies[addr].addr)
		}
		for name, m := range modes {
			t.Run(name, func(t *testing.T) {
				s := open(t, url, func(o *Options) {
					o.Timeout, o.Prefix, o.dial = 400*time.Millisecond, unique("f"), dial
				})
				complete(t, s, "a", "k0", "x")
				sc, _ := s.scope("a")
				client, err := s.topo.node(ctx(t), sc)
				if err != nil {
					t.Fatal(err)
				}
				p := proxies[client.Options().Addr]
				onceOnly(t, s, p, m, func() int {
					n := 0
					for _, srv := range nodes {
						n += srv.runs()
					}
					return n
				})
			})
		}
	})

	t.Run("a slot that moves is followed", func(t *testing.T) {
		s := open(t, url, func(o *Options) { o.Prefix = unique("f") })
		var stop atomic.Bool
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for j := 0; !stop.Load() || j < 20; j++ {
					complete(t, s, "a", fmt.Sprint("k", i, "-", j), "x")
				}
			})
		}
		slot := nodes[0].do("cluster", "keyslot", s.opt.Prefix+":{a}:meta").(int64)
		sc, _ := s.scope("a")
		client, err := s.topo.node(ctx(t), sc)
		if err != nil {
			t.Fatal(err)
		}
		var from, to *server
		for _, n := range nodes {
			if n.addr() == client.Options().Addr {
				from = n
			} else {
				to = n
			}
		}
		moveSlot(t, nodes, from, to, slot)
		stop.Store(true)
		wg.Wait()
		if s.alarm.Load() != nil {
			t.Fatalf("a moved slot looks like a rollback: %s", s.alarm.Load().why)
		}
		if after, err := s.topo.node(ctx(t), sc); err != nil || after.Options().Addr != to.addr() {
			t.Fatalf("the scope is still sought at %v: %v", after, err)
		}
	})
}

func mastersOf(t *testing.T, s *Store) *sync.Map {
	m := &sync.Map{}
	for i := range 200 {
		sc := s.newScope(fmt.Sprint(i))
		c, err := s.topo.node(ctx(t), sc)
		if err != nil {
			t.Fatal(err)
		}
		m.Store(c, true)
	}
	return m
}

// moveSlot moves a slot with its keys, as an operator's resharding does.
func moveSlot(t *testing.T, nodes []*server, from, to *server, slot int64) {
	t.Helper()
	fromID, toID := from.do("cluster", "myid"), to.do("cluster", "myid")
	to.do("cluster", "setslot", slot, "importing", fromID)
	from.do("cluster", "setslot", slot, "migrating", toID)
	for {
		keys := from.do("cluster", "getkeysinslot", slot, 1000).([]any)
		if len(keys) == 0 {
			break
		}
		from.do(append([]any{"migrate", "127.0.0.1", to.port, "", 0, 5000, "keys"}, keys...)...)
	}
	for _, n := range nodes {
		n.do("cluster", "setslot", slot, "node", toID)
	}
}

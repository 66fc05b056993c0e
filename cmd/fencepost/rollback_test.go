package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestARollbackStopsSendsUntilAcknowledged, and does not come back by itself:
// flush, refuse, acknowledge, go on, also with a slow request that extends its
// deadline.
func TestARollbackStopsSendsUntilAcknowledged(t *testing.T) {
	server := startRedis(t)
	up := newProvider(t)
	file := configFile(t, up.URL, server.url, "")
	ps := []*process{launch(t, nil, "serve", "--config", file), launch(t, nil, "serve", "--config", file)}
	port := strings.TrimSuffix(server.url[strings.LastIndex(server.url, ":")+1:], "/0")
	if r := ps[0].post("before", "x"); r.status != 201 {
		t.Fatalf("%+v", r)
	}
	for round := range 3 {
		if out, err := exec.Command("redis-cli", "-p", port, "FLUSHALL").CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		// Whoever comes first, also through the proxy that never saw the key.
		for i, p := range []*process{ps[1], ps[0]} {
			if r := p.post("before", "x"); r.status != 503 || r.code() != "ledger_rolled_back" {
				t.Errorf("round %d, proxy %d: %+v", round, i, r)
			}
		}
		if _, n := up.counts("before"); n != 1 {
			t.Fatalf("%d effects", n)
		}
		out, err := exec.Command(binary(t), "check", "--config", file, "--acknowledge-rollback").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "rollback: acknowledged") {
			t.Fatalf("%v %s", err, out)
		}
		for i, p := range ps {
			key := fmt.Sprintf("after-%d-%d", round, i)
			eventually(t, "sending goes on", func() bool { return p.post(key, "x").status == 201 })
			slow := "slow-" + key
			up.mu.Lock()
			up.after = func(k string) {
				if k == slow {
					time.Sleep(2500 * time.Millisecond)
				}
			}
			up.mu.Unlock()
			if r := p.post(slow, "x"); r.status != 201 {
				t.Errorf("round %d, proxy %d, slow: %+v", round, i, r)
			}
			if r := p.post(key+"-2", "x"); r.status != 201 {
				t.Errorf("round %d, proxy %d: %+v", round, i, r)
			}
		}
	}
}

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestKilledAtEveryStep kills the proxy with SIGKILL at each step of the
// exchange, starts it again on the same ledger, looks the key up and retries.
// No key is sent twice, no acknowledged result is lost, every doubt reads
// UNKNOWN.
func TestKilledAtEveryStep(t *testing.T) {
	steps := []struct {
		at      string
		state   string // as read after the restart
		effects int    // at the provider when the proxy was killed; -1 likewise
		retry   int    // status of the retry
		total   int    // effects in the end; -1 where the kernel may still deliver them
	}{
		{"claim.before", "none", 0, 201, 1},
		{"claim.after", "reserved", 0, 201, 1},
		{"connect.after", "reserved", 0, 201, 1},
		{"mark.before", "reserved", 0, 201, 1},
		{"mark.after", "unknown", 0, 409, 0},
		{"provider.first-bytes", "unknown", -1, 409, -1},
		{"provider.effect", "unknown", 1, 409, 1},
		{"send.after", "unknown", 1, 409, 1},
		{"record.before", "unknown", 1, 409, 1},
		{"record.after", "completed", 1, 201, 1},
		{"reply.after", "completed", 1, 201, 1},
	}
	for _, kind := range []string{"sqlite", "redis"} {
		t.Run(kind, func(t *testing.T) {
			var server *redisServer
			if kind == "redis" {
				server = startRedis(t)
			}
			t.Run("steps", func(t *testing.T) { // so that the server outlives them all
				for _, s := range steps {
					t.Run(s.at, func(t *testing.T) {
						t.Parallel()
						up := newProvider(t)
						ledger := "sqlite://" + filepath.Join(t.TempDir(), "ledger.db")
						if server != nil {
							ledger = server.url + "?prefix=" + strings.ReplaceAll(s.at, ".", "-")
						}
						file := configFile(t, up.URL, ledger, "")

						var env []string
						if !strings.HasPrefix(s.at, "provider.") {
							env = []string{"FENCEPOST_FAILPOINT=" + s.at + "=kill"}
						}
						p := launch(t, env, "serve", "--config", file)
						kill := func(string) { p.signal(syscall.SIGKILL); <-p.done }
						body := strings.Repeat("x", 1<<20)
						switch s.at {
						case "provider.first-bytes":
							up.mu.Lock()
							up.before = kill
							up.mu.Unlock()
						case "provider.effect":
							up.mu.Lock()
							up.after = kill
							up.mu.Unlock()
						}
						first := p.post("k", body)
						if s.at != "reply.after" && first.err == nil {
							t.Errorf("the caller got %d %s from a killed proxy", first.status, first.body)
						}
						if p.ended() != -1 {
							t.Fatal("the proxy was not killed")
						}
						up.mu.Lock()
						up.before, up.after = nil, nil
						up.mu.Unlock()
						if _, n := up.counts("k"); n != s.effects && s.effects >= 0 {
							t.Fatalf("%d effects at the kill, want %d", n, s.effects)
						}

						p = launch(t, nil, "serve", "--config", file)
						if kind == "redis" && (s.state == "unknown" || s.state == "reserved") {
							// Another proxy cannot know that the owner is dead before its deadline.
							before := p.post("k", body)
							if before.status != 409 || before.code() != "idempotency_in_flight" {
								t.Errorf("before the deadline: %d %s", before.status, before.body)
							}
							eventually(t, "the owner's deadline passes", func() bool {
								return p.state("k") != "dispatched" && p.post("k", body).code() != "idempotency_in_flight"
							})
							if s.state == "reserved" {
								s.state = "completed" // the retry in the loop went through
							}
						}
						if got := p.state("k"); got != s.state {
							t.Errorf("it reads %s, want %s", got, s.state)
						}
						again := p.post("k", body)
						if again.status != s.retry {
							t.Errorf("the retry got %d %s, want %d", again.status, again.body, s.retry)
						}
						if s.retry == 201 && again.body != "effect 1 of k" {
							t.Errorf("the retry got %q", again.body)
						}
						if s.retry == 409 && again.code() != "outcome_unknown" {
							t.Errorf("the retry got %s", again.body)
						}
						if first.err == nil && first.body != again.body {
							t.Errorf("acknowledged %q, replayed %q", first.body, again.body)
						}
						if _, n := up.counts("k"); n != s.total && (s.total >= 0 || n > 1) {
							t.Errorf("%d effects in the end, want %d", n, s.total)
						}
					})
				}
			})
		})
	}
}

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bank is a provider that keeps charges by order, outlives every proxy, and can
// be asked. Attempts and confirmed effects are its own count.
type bank struct {
	*httptest.Server
	mu       sync.Mutex
	attempts map[string]int
	charges  map[string]int
	// on decides what a charge does: whether it has its effect, and what then.
	on func(order string, w http.ResponseWriter) (effect bool)
	// away makes the lookup answer 503; asked runs at each lookup.
	away  bool
	asked func()
}

func newBank(t *testing.T) *bank {
	b := &bank{attempts: map[string]int{}, charges: map[string]int{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(func() { b.CloseClientConnections(); b.Close() })
	return b
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		b.mu.Lock()
		n, away, asked := b.charges[r.URL.Query().Get("order")], b.away, b.asked
		b.mu.Unlock()
		if asked != nil {
			asked()
		}
		if away {
			w.WriteHeader(503)
			return
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.TrimSuffix(strings.Repeat(`{"order":"`+r.URL.Query().Get("order")+`"},`, n), ","))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	order := strings.TrimSuffix(strings.TrimPrefix(string(body), `{"order_id":"`), `"}`)
	b.mu.Lock()
	b.attempts[order]++
	on := b.on
	b.mu.Unlock()
	if on != nil {
		effect := on(order, w)
		b.mu.Lock()
		if effect {
			b.charges[order]++
		}
		b.mu.Unlock()
		if effect {
			panic(http.ErrAbortHandler) // the effect happened, the answer is lost
		}
		w.WriteHeader(503)
		return
	}
	b.mu.Lock()
	b.charges[order]++
	b.mu.Unlock()
	w.WriteHeader(201)
	fmt.Fprintf(w, `{"order":"%s"}`, order)
}

func (b *bank) set(on func(string, http.ResponseWriter) bool, away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on, b.away = on, away
}

// counts fails the test unless the order saw exactly so many of each.
func (b *bank) counts(t *testing.T, order string, attempts, effects int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attempts[order] != attempts || b.charges[order] != effects {
		t.Errorf("order %s: %d attempts and %d effects, want %d and %d", order, b.attempts[order], b.charges[order], attempts, effects)
	}
}

func recoveryConfig(t *testing.T, b *bank, ledger string) string {
	name := filepath.Join(t.TempDir(), "fencepost.yaml")
	text := fmt.Sprintf(`
listen: 127.0.0.1:0
admin: {listen: '127.0.0.1:0'}
ledger: {url: '%s', timeout: 1s, owner_deadline: 3s}
routes:
  - name: charges
    match: {path: /charges}
    upstream: %s
    timeout: 2s
    capture: {order: request.json.order_id}
    reconcile:
      lookup: {url: '%s/find?order={captured.order}'}
      confirmed: "lookup.status == 200 && size(lookup.json.data) == 1"
      not_found: "lookup.status == 200 && size(lookup.json.data) == 0"
      complete: true
      settle: 1s
      response: {status: 201, json: "lookup.json.data[0]"}
      every: 1s
      max_every: 2s
  - {name: mails, upstream: '%s'}
limits: {late_answer: 0s}
`, ledger, b.URL, b.URL, b.URL)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestRecoveryFixtures: each row is named for what it shows, on SQLite and on a
// real Redis, with real processes.
func TestRecoveryFixtures(t *testing.T) {
	order := func(n string) string { return `{"order_id":"` + n + `"}` }
	type world struct {
		t    *testing.T
		b    *bank
		file string
		p    *process
		// shared says that several proxies can use the ledger.
		shared bool
	}
	post := func(w *world, path, key, o string, header ...string) reply {
		req, err := http.NewRequest("POST", w.p.url+path, strings.NewReader(order(o)))
		if err != nil {
			w.t.Fatal(err)
		}
		req.GetBody = nil
		req.Header.Set("Idempotency-Key", key)
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := testClient.Do(req)
		if err != nil {
			return reply{err: err}
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return reply{resp.StatusCode, resp.Header, string(body), err}
	}
	lost := func(string, http.ResponseWriter) bool { return true }
	nothing := func(string, http.ResponseWriter) bool { return false }
	restart := func(w *world, env ...string) {
		w.p.signal(syscall.SIGKILL)
		w.p.ended()
		w.p = launch(w.t, env, "serve", "--config", w.file)
	}
	fixtures := []struct {
		name string
		env  []string
		run  func(w *world)
	}{
		{"killed after the intent, before the send: recovery sends once", []string{"FENCEPOST_FAILPOINT=mark.before=kill"}, func(w *world) {
			post(w, "/charges", "k", "o")
			w.p.ended()
			w.p = launch(w.t, nil, "serve", "--config", w.file)
			eventually(w.t, "the retry goes through", func() bool { return post(w, "/charges", "k", "o").status == 201 })
			w.b.counts(w.t, "o", 1, 1)
		}},
		{"killed after the remote effect, before the record: unknown, reconciled, one effect", []string{"FENCEPOST_FAILPOINT=record.before=kill"}, func(w *world) {
			post(w, "/charges", "k", "o")
			w.p.ended()
			w.p = launch(w.t, nil, "serve", "--config", w.file)
			eventually(w.t, "the schedule settles it", func() bool { return w.p.state("k") == "completed" })
			if r := post(w, "/charges", "k", "o"); r.status != 201 || r.body != `{"order":"o"}` || r.header.Get("Idempotent-Replayed") != "true" {
				w.t.Errorf("%+v", r)
			}
			w.b.counts(w.t, "o", 1, 1)
		}},
		{"the provider times out after accepting: unknown, reconciled, one effect", nil, func(w *world) {
			w.b.set(func(o string, _ http.ResponseWriter) bool {
				w.b.mu.Lock()
				w.b.charges[o]++ // accepted at once, answered never
				w.b.mu.Unlock()
				time.Sleep(2500 * time.Millisecond)
				return false
			}, false)
			if r := post(w, "/charges", "k", "o"); r.status != 504 || r.code() != "outcome_unknown" {
				w.t.Errorf("%+v", r)
			}
			eventually(w.t, "it is settled", func() bool { return post(w, "/charges", "k", "o").status == 201 })
			w.b.counts(w.t, "o", 1, 1)
		}},
		{"the effect comes after our patience: not found is not believed too early", nil, func(w *world) {
			w.b.set(func(string, http.ResponseWriter) bool { time.Sleep(2500 * time.Millisecond); return true }, false)
			if r := post(w, "/charges", "k", "o"); r.status != 504 || r.code() != "outcome_unknown" {
				w.t.Errorf("%+v", r)
			}
			eventually(w.t, "it is settled", func() bool { return post(w, "/charges", "k", "o").status == 201 })
			w.b.counts(w.t, "o", 1, 1)
		}},
		{"refused without effect: not found is proof, and one more send is made", nil, func(w *world) {
			w.b.set(nothing, false)
			if r := post(w, "/charges", "k", "o"); r.status != 503 || r.header.Get("Fencepost-State") != "unknown" {
				w.t.Errorf("%+v", r)
			}
			w.b.set(nil, false)
			eventually(w.t, "it is sent again", func() bool { return post(w, "/charges", "k", "o").status == 201 })
			w.b.counts(w.t, "o", 2, 1)
		}},
		{"the lookup is away for a while: unknown until it is back", nil, func(w *world) {
			w.b.set(lost, true)
			post(w, "/charges", "k", "o")
			time.Sleep(1500 * time.Millisecond)
			if r := post(w, "/charges", "k", "o"); r.code() != "outcome_unknown" {
				w.t.Errorf("%+v", r)
			}
			w.b.set(nil, false)
			eventually(w.t, "it is settled", func() bool { return w.p.state("k") == "completed" })
			w.b.counts(w.t, "o", 1, 1)
		}},
		{"no way to ask: a person decides, and the decision is spent by one send", nil, func(w *world) {
			w.b.set(lost, false)
			post(w, "/mails", "m", "o")
			time.Sleep(1200 * time.Millisecond)
			if s := w.p.state("m"); s != "unknown" {
				w.t.Errorf("it reads %s", s)
			}
			out, err := exec.Command(binary(w.t), "ops", "resolve", "m", "--as", "not_applied", "--reason", "not in the outbox", "--admin", w.p.admin).CombinedOutput()
			if err != nil {
				w.t.Fatalf("%v %s", err, out)
			}
			post(w, "/mails", "m", "o") // sent, and lost again
			restart(w)
			eventually(w.t, "it reads unknown again", func() bool { return w.p.state("m") == "unknown" })
			if r := post(w, "/mails", "m", "o"); r.code() != "outcome_unknown" {
				w.t.Errorf("%+v", r)
			}
			w.b.counts(w.t, "o", 2, 2) // the person was wrong; Fencepost sent what it was told to, once
		}},
		{"a stale worker resumes with an old token: refused, nothing sent", nil, func(w *world) {
			lease := func(owner string) {
				send("POST", w.p.url+"/_fencepost/v1/leases/run", "", `{"owner":"`+owner+`","ttl":"1s"}`)
			}
			lease("w1")
			if r := post(w, "/charges", "k1", "o1", "Fencepost-Lease", `"run";token=1`); r.status != 201 {
				w.t.Errorf("%+v", r)
			}
			eventually(w.t, "the lease expires", func() bool {
				return strings.Contains(send("GET", w.p.url+"/_fencepost/v1/leases/run", "", "").body, `"held": false`)
			})
			lease("w2")
			if r := post(w, "/charges", "k2", "o2", "Fencepost-Lease", `"run";token=2`); r.status != 201 {
				w.t.Errorf("%+v", r)
			}
			if r := post(w, "/charges", "k3", "o3", "Fencepost-Lease", `"run";token=1`); r.status != 412 {
				w.t.Errorf("%+v", r)
			}
			w.b.counts(w.t, "o1", 1, 1)
			w.b.counts(w.t, "o2", 1, 1)
			w.b.counts(w.t, "o3", 0, 0)
		}},
		{"paused past its deadline before the mark: another acts, and it sends nothing", []string{"FENCEPOST_FAILPOINT=mark.before=stop"}, func(w *world) {
			first := make(chan reply, 1)
			paused := w.p
			go func() { first <- post(w, "/charges", "k", "o") }()
			eventually(w.t, "it is paused", func() bool {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", paused.cmd.Process.Pid))
				return strings.Contains(string(b), ") T ")
			})
			if !w.shared {
				paused.signal(syscall.SIGCONT) // nobody else can act on this ledger
				if r := <-first; r.status != 201 {
					w.t.Errorf("%+v", r)
				}
				w.b.counts(w.t, "o", 1, 1)
				return
			}
			other := launch(w.t, nil, "serve", "--config", w.file)
			eventually(w.t, "another takes over", func() bool {
				r := send("POST", other.url+"/charges", "k", order("o"))
				return r.status == 201
			})
			paused.signal(syscall.SIGCONT)
			// It is told the result, or that its ledger call took too long; it sends
			// nothing either way.
			if r := <-first; r.code() != "ledger_unavailable" && (r.status != 201 || r.header.Get("Idempotent-Replayed") != "true") {
				w.t.Errorf("the paused one: %+v", r)
			}
			w.b.counts(w.t, "o", 1, 1)
		}},
		{"a duplicate message from the queue, and one with another payload", nil, func(w *world) {
			for range 3 {
				if r := post(w, "/charges", "k", "o"); r.status != 201 {
					w.t.Errorf("%+v", r)
				}
			}
			if r := post(w, "/charges", "k", "p"); r.status != 422 {
				w.t.Errorf("%+v", r)
			}
			w.b.counts(w.t, "o", 1, 1)
			w.b.counts(w.t, "p", 0, 0)
		}},
	}
	for _, kind := range []string{"sqlite", "redis"} {
		t.Run(kind, func(t *testing.T) {
			var server *redisServer
			if kind == "redis" {
				server = startRedis(t)
			}
			t.Run("fixtures", func(t *testing.T) {
				for i, f := range fixtures {
					t.Run(f.name, func(t *testing.T) {
						t.Parallel()
						ledger := "sqlite://" + filepath.Join(t.TempDir(), "ledger.db")
						if server != nil {
							ledger = fmt.Sprintf("%s?prefix=fixture%d", server.url, i)
						}
						b := newBank(t)
						w := &world{t: t, b: b, file: recoveryConfig(t, b, ledger), shared: server != nil}
						w.p = launch(t, f.env, "serve", "--config", w.file)
						f.run(w)
					})
				}
			})
		})
	}
}

// TestTheLedgerIsAwayDuringRecovery: the provider has confirmed the effect, and
// Redis is gone before that can be written. Nothing is sent; the schedule asks
// again when it is back.
func TestTheLedgerIsAwayDuringRecovery(t *testing.T) {
	server := startRedis(t)
	b := newBank(t)
	p := launch(t, nil, "serve", "--config", recoveryConfig(t, b, server.url))
	post := func() reply { return send("POST", p.url+"/charges", "k", `{"order_id":"o"}`) }
	b.set(func(string, http.ResponseWriter) bool { return true }, false)
	if r := post(); r.code() != "outcome_unknown" {
		t.Fatalf("%+v", r)
	}
	var once sync.Once
	b.mu.Lock()
	b.asked = func() { once.Do(server.stop) }
	b.mu.Unlock()
	eventually(t, "the ledger goes away under a lookup", func() bool { return post().code() == "ledger_unavailable" })
	b.counts(t, "o", 1, 1)
	server.start()
	eventually(t, "it is settled", func() bool { return post().status == 201 })
	b.counts(t, "o", 1, 1)
}

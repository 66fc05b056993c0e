package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestServeNeedsNoFile(t *testing.T) {
	up := newProvider(t)
	dir := t.TempDir()
	p := launch(t, nil, "serve", "--upstream", up.URL, "--listen", "127.0.0.1:0", "--ledger", "sqlite://"+filepath.Join(dir, "l.db"))
	first := p.post("k", "x")
	if first.status != 201 || first.body != "effect 1 of k" {
		t.Fatalf("%+v", first)
	}
	if again := p.post("k", "x"); again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Fatalf("%+v", again)
	}
	fi, err := os.Stat(filepath.Join(dir, "l.db"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAStopFinishesWhatIsUnderWay(t *testing.T) {
	up := newProvider(t)
	release := make(chan struct{})
	arrived := make(chan struct{}, 1)
	up.mu.Lock()
	up.after = func(key string) {
		if key == "k" {
			arrived <- struct{}{}
			<-release
		}
	}
	up.mu.Unlock()
	file := configFile(t, up.URL, "sqlite://"+filepath.Join(t.TempDir(), "l.db"), "drain: {delay: 300ms}\n")
	p := launch(t, nil, "serve", "--config", file)
	got := make(chan reply, 1)
	go func() { got <- p.post("k", "x") }()
	<-arrived
	p.signal(syscall.SIGTERM)
	eventually(t, "readiness fails first", func() bool { return send("GET", p.admin+"/readyz", "", "").status == 503 })
	if r := send("GET", p.admin+"/healthz", "", ""); r.status != 200 {
		t.Errorf("healthz while draining: %d %v", r.status, r.err)
	}
	eventually(t, "the listener closes", func() bool { return p.post("new", "x").err != nil || p.post("new", "x").status == 503 })
	close(release)
	if r := <-got; r.status != 201 || r.body != "effect 1 of k" {
		t.Errorf("%+v", r)
	}
	if code := p.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestASecondSignalCutsOffAndTheDoubtIsRecorded(t *testing.T) {
	up := newProvider(t)
	release := make(chan struct{})
	arrived := make(chan struct{}, 1)
	up.mu.Lock()
	up.after = func(string) { arrived <- struct{}{}; <-release }
	up.mu.Unlock()
	defer close(release)
	file := configFile(t, up.URL, "sqlite://"+filepath.Join(t.TempDir(), "l.db"), "")
	p := launch(t, nil, "serve", "--config", file)
	got := make(chan reply, 1)
	go func() { got <- p.post("k", "x") }()
	<-arrived
	p.signal(syscall.SIGTERM)
	eventually(t, "it drains", func() bool { return strings.Contains(p.logged(), `"draining"`) })
	p.signal(syscall.SIGINT)
	if r := <-got; r.status != 502 || r.code() != "outcome_unknown" {
		t.Errorf("%+v", r)
	}
	if code := p.ended(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	up.mu.Lock()
	up.after = nil
	up.mu.Unlock()
	p = launch(t, nil, "serve", "--config", file)
	if s := p.state("k"); s != "unknown" {
		t.Errorf("it reads %s", s)
	}
	if r := p.post("k", "x"); r.code() != "outcome_unknown" {
		t.Errorf("%+v", r)
	}
}

func TestAHangupReloadsOrSaysWhyNot(t *testing.T) {
	one, two := newProvider(t), newProvider(t)
	ledger := "sqlite://" + filepath.Join(t.TempDir(), "l.db")
	file := configFile(t, one.URL, ledger, "")
	p := launch(t, nil, "serve", "--config", file)
	good, _ := os.ReadFile(file)
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGHUP)
	}
	write("nonsense: 1\n")
	eventually(t, "the reload is refused", func() bool { return strings.Contains(p.logged(), "reload refused") })
	if !strings.Contains(p.logged(), `unknown key \"nonsense\"`) {
		t.Error("it does not say why")
	}
	if m := send("GET", p.admin+"/metrics", "", ""); !strings.Contains(m.body, "fencepost_config_last_reload_successful 0") {
		t.Error("the metric does not say so")
	}
	if r := p.post("k1", "x"); r.status != 201 {
		t.Errorf("the old rules are gone: %+v", r)
	}
	write(strings.Replace(string(good), "owner_deadline: 3s", "owner_deadline: 4s", 1))
	eventually(t, "a change that needs a restart is refused", func() bool { return strings.Contains(p.logged(), "[ledger] can only be changed by a restart") })
	write(strings.ReplaceAll(string(good), one.URL, two.URL))
	eventually(t, "the reload is done", func() bool { return strings.Contains(p.logged(), `"msg":"reloaded"`) })
	if r := p.post("k2", "x"); r.status != 201 {
		t.Errorf("%+v", r)
	}
	if _, n := two.counts("k2"); n != 1 {
		t.Errorf("%d effects at the new upstream", n)
	}
}

func TestASQLiteLedgerServesOneProcess(t *testing.T) {
	up := newProvider(t)
	ledger := "sqlite://" + filepath.Join(t.TempDir(), "l.db")
	p := launch(t, nil, "serve", "--config", configFile(t, up.URL, ledger, ""))
	second := launchRaw(t, nil, "serve", "--config", configFile(t, up.URL, ledger, ""))
	if code := second.ended(); code != 1 || !strings.Contains(second.logged(), "in use by another process") {
		t.Errorf("exit %d: %s", code, second.logged())
	}
	out, err := exec.Command(binary(t), "check", "--config", configFile(t, up.URL, ledger, "")).Output()
	if err == nil || !strings.Contains(string(out), "in use by another process") {
		t.Errorf("check: %v %s", err, out)
	}
	if r := p.post("k", "x"); r.status != 201 {
		t.Errorf("%+v", r)
	}
}

func TestATakenPortIsAClearError(t *testing.T) {
	up := newProvider(t)
	addr := strings.TrimPrefix(up.URL, "http://")
	p := launchRaw(t, nil, "serve", "--upstream", up.URL, "--listen", addr, "--ledger", "sqlite://"+filepath.Join(t.TempDir(), "l.db"))
	if code := p.ended(); code != 1 || !strings.Contains(p.logged(), "cannot listen") || !strings.Contains(p.logged(), addr) {
		t.Errorf("exit %d: %s", code, p.logged())
	}
}

func TestTwoProxiesOnOneRedis(t *testing.T) {
	server := startRedis(t)
	up := newProvider(t)
	up.mu.Lock()
	up.after = func(string) { time.Sleep(5 * time.Millisecond) }
	up.mu.Unlock()
	file := configFile(t, up.URL, server.url, "")
	patientLedger(t, file)
	ps := []*process{launch(t, nil, "serve", "--config", file), launch(t, nil, "serve", "--config", file)}
	const keys, each = 8, 40
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]map[string]int{}
	for k := range keys {
		for i := range each {
			wg.Go(func() {
				key := fmt.Sprint("k", k)
				req, _ := http.NewRequest("POST", ps[i%2].url+"/v1/charges", strings.NewReader("x"))
				req.GetBody = nil
				req.Header.Set("Idempotency-Key", key)
				req.Header.Set("Prefer", "wait=30")
				resp, err := testClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				b := make([]byte, 64)
				n, _ := resp.Body.Read(b)
				mu.Lock()
				defer mu.Unlock()
				if answers[key] == nil {
					answers[key] = map[string]int{}
				}
				answers[key][fmt.Sprint(resp.StatusCode, " ", string(b[:n]))]++
			})
		}
	}
	wg.Wait()
	for k := range keys {
		key := fmt.Sprint("k", k)
		if a, n := up.counts(key); a != 1 || n != 1 {
			t.Errorf("%s: %d attempts, %d effects", key, a, n)
		}
		if len(answers[key]) != 1 || answers[key]["201 effect 1 of "+key] != each {
			t.Errorf("%s: %v", key, answers[key])
		}
	}
}

// TestRedisGoesAndComesBack: before the send nothing is sent; after the send the
// caller gets the real answer, and the record is written when Redis is back.
func TestRedisGoesAndComesBack(t *testing.T) {
	server := startRedis(t)
	up := newProvider(t)
	p := launch(t, nil, "serve", "--config", configFile(t, up.URL, server.url, ""))
	if r := p.post("k1", "x"); r.status != 201 {
		t.Fatalf("%+v", r)
	}
	up.mu.Lock()
	up.after = func(key string) {
		if key == "k2" {
			server.stop()
		}
	}
	up.mu.Unlock()
	if r := p.post("k2", "x"); r.status != 201 || r.body != "effect 1 of k2" || r.header.Get("Fencepost-State") != "dispatched" {
		t.Errorf("%+v", r)
	}
	began := time.Now()
	if r := p.post("k3", "x"); r.status != 503 || r.code() != "ledger_unavailable" {
		t.Errorf("%+v", r)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("a dead ledger kept the caller for %v", d)
	}
	if a, _ := up.counts("k3"); a != 0 {
		t.Error("sent without a ledger")
	}
	server.start()
	eventually(t, "the outcome is written", func() bool {
		r := send("GET", p.url+"/_fencepost/v1/operations/k2", "", "")
		return r.status == 200 && strings.Contains(r.body, `"state": "completed"`)
	})
	for _, k := range []string{"k1", "k2", "k3"} {
		if r := p.post(k, "x"); r.status != 201 || r.body != "effect 1 of "+k {
			t.Errorf("%s: %+v", k, r)
		}
	}
}

// TestKilledWhileAnOutcomeWaits: Redis is away when the answer comes, and the
// proxy dies before it is back.
func TestKilledWhileAnOutcomeWaits(t *testing.T) {
	server := startRedis(t)
	up := newProvider(t)
	file := configFile(t, up.URL, server.url, "")
	p := launch(t, nil, "serve", "--config", file)
	up.mu.Lock()
	up.after = func(string) { server.stop() }
	up.mu.Unlock()
	if r := p.post("k", "x"); r.status != 201 {
		t.Fatalf("%+v", r)
	}
	p.signal(syscall.SIGKILL)
	p.ended()
	up.mu.Lock()
	up.after = nil
	up.mu.Unlock()
	server.start()
	p = launch(t, nil, "serve", "--config", file)
	eventually(t, "the owner's deadline passes", func() bool { return p.state("k") == "unknown" })
	if r := p.post("k", "x"); r.status != 409 || r.code() != "outcome_unknown" {
		t.Errorf("%+v", r)
	}
	if _, n := up.counts("k"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestAFullDiskSendsNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a small file system")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small file system: %v %s", err, out)
	}
	defer exec.Command("umount", "-l", dir).Run()
	up := newProvider(t)
	p := launch(t, nil, "serve", "--config", configFile(t, up.URL, "sqlite://"+filepath.Join(dir, "l.db"), ""))
	if r := p.post("before", "x"); r.status != 201 {
		t.Fatalf("%+v", r)
	}
	fill := filepath.Join(dir, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	f.Close()
	refused := 0
	for i := range 50 {
		key := fmt.Sprint("full-", i)
		r := p.post(key, "x")
		a, _ := up.counts(key)
		switch {
		case r.status == 503 && r.code() == "ledger_unavailable" && a == 0:
			refused++
		case r.status == 201 && a == 1: // there was still room in the log
		default:
			t.Fatalf("%s: %d attempts, %+v", key, a, r)
		}
	}
	if refused == 0 {
		t.Error("the disk never got full")
	}
	if r := p.post("before", "x"); r.status != 201 || r.body != "effect 1 of before" {
		t.Errorf("a replay needs no room: %+v", r)
	}
	os.Remove(fill)
	if r := p.post("after", "x"); r.status != 201 {
		t.Errorf("with room again: %+v", r)
	}
}

func TestCheckGivesAVerdict(t *testing.T) {
	dir := t.TempDir()
	good := configFile(t, "https://api.example.com", "sqlite://"+filepath.Join(dir, "l.db"), "")
	bad := filepath.Join(dir, "bad.yaml")
	os.WriteFile(bad, []byte("listen: 127.0.0.1:1\nledgr: {}\nroutes: []\n"), 0o600)
	profiled := filepath.Join(dir, "profiled.yaml")
	os.WriteFile(profiled, []byte("routes:\n- {name: charges, profile: stripe, match: {path: /v1/}, upstream: 'https://api.stripe.com'}\n- {name: rest, upstream: 'https://api.example.com'}\n"), 0o600)
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"check", "--config", good}, 0, []string{"configuration: ok, 1 route(s), 0 caller(s)", "ledger: ok"}},
		{[]string{"check", "--config", bad}, 1, []string{"configuration: refused", bad + `:2:1: unknown key "ledgr"`}},
		{[]string{"check", "--config", filepath.Join(dir, "none.yaml")}, 1, []string{"none.yaml"}},
		{[]string{"check", "--upstream", "https://api.example.com", "--ledger", "redis://127.0.0.1:1/0"}, 1, []string{"configuration: ok", "ledger: refused", "127.0.0.1:1 does not answer"}},
		{[]string{"check", "--upstream", "https://api.example.com", "--ledger", "redis://:secret@127.0.0.1:1/0"}, 1, []string{"put it into the environment"}},
		{[]string{"check", "--upstream", "https://api.example.com", "--ledger", "redis://:s3/secret@127.0.0.1:1/0"}, 1, []string{"put it into the environment"}},
		{[]string{"check", "--upstream", "https://api.example.com", "--ledger", "redis+sentinel://:zz%zzsecret@127.0.0.1:1/m/0"}, 1, []string{"put it into the environment"}},
		{[]string{"check", "--upstream", "https://api.example.com", "--ledger", "redis://:${PATH}@127.0.0.1:1/0"}, 1, []string{"configuration: ok", "ledger: refused"}},
		{[]string{"check", "--upstream", "https://api.example.com", "--ledger", "sqlite://" + filepath.Join(dir, "q.db?timeout=5s")}, 1, []string{"ledger.url: a file name with ? or # is not supported"}},
		{[]string{"check", "--upstream", "https://bob:%zzsecret@api.example.com"}, 1, []string{"routes[0].upstream: the value (not shown"}},
		{[]string{"check", "--upstream", "https://api.example.com", "--listen", "127.0.0.1:99999"}, 1, []string{"listen: \"127.0.0.1:99999\" has no usable port"}},
		{[]string{"serve", "--upstream", "https://api.example.com", "--listen", "127.0.0.1:"}, 2, []string{"listen: \"127.0.0.1:\" has no port"}},
		{[]string{"check", "--upstream", "nonsense"}, 1, []string{"is not a URL"}},
		{[]string{"check"}, 1, []string{"give --config FILE, or --upstream URL"}},
		{[]string{"check", "--config", good, "--upstream", "http://x"}, 1, []string{"not both"}},
		{[]string{"check", "--config", good, "--acknowledge-rollback"}, 1, []string{"does not detect rollbacks"}},
		{[]string{"check", "extra"}, 2, []string{`unexpected argument`}},
		{[]string{"serve", "--config", bad}, 2, []string{"the configuration is refused", "unknown key"}},
		{[]string{"serve", "--nonsense"}, 2, []string{"nonsense"}},
		{[]string{"frobnicate"}, 2, []string{`no command "frobnicate"`, "serve"}},
		{[]string{}, 2, []string{"Commands:"}},
		{[]string{"help"}, 0, []string{"Commands:"}},
		{[]string{"version"}, 0, []string{"fencepost "}},
		{[]string{"check", "-h"}, 0, []string{"-config"}},
		{[]string{"check", "--no-ledger", "--config", profiled}, 0, []string{"configuration: ok, 2 route(s)", "profiles: charges (stripe)\n"}},
		{[]string{"profile"}, 0, []string{"adyen\ngithub\npaypal\nsendgrid\nshopify\nslack\nstripe\ntwilio\n"}},
		{[]string{"profile", "stripe"}, 0, []string{"key: {header: Idempotency-Key}\n", "deduplicates_for: 23h"}},
		{[]string{"profile", "strip"}, 2, []string{`there is no profile "strip"; known are adyen, `}},
	} {
		cmd := exec.Command(binary(t), c.args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code {
			t.Errorf("%v: exit %d, want %d\n%s", c.args, code, c.code, out)
		}
		for _, w := range c.want {
			if !strings.Contains(string(out), w) {
				t.Errorf("%v: %q is missing in\n%s", c.args, w, out)
			}
		}
		if strings.Contains(string(out), "secret@") {
			t.Errorf("%v prints a password", c.args)
		}
	}
}

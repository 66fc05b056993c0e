package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
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

	"fencepost/proxy/ca"
)

// world stands for the hosts out there: a parent proxy that leads every name to a
// server of this test, over TLS that its own authority vouches for.
type world struct {
	t      *testing.T
	dir    string
	parent string
	ca     string // PEM file

	mu       sync.Mutex
	effects  map[string]int // by host and key
	arrivals map[string]int // by host
	handle   func(w http.ResponseWriter, r *http.Request, effect int)
	// instead, when not nil, serves everything, and nothing is counted.
	instead http.Handler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), effects: map[string]int{}, arrivals: map[string]int{}}
	signer := newSigner(t)
	w.ca = filepath.Join(w.dir, "world.pem")
	if err := os.WriteFile(w.ca, signer.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(w)
	s.TLS = &tls.Config{GetCertificate: signer.leaf}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = discardLog
	s.StartTLS()
	t.Cleanup(s.Close)
	plain := httptest.NewServer(w)
	t.Cleanup(plain.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w.parent = l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go lead(c, s.Listener.Addr().String(), plain.Listener.Addr().String())
		}
	}()
	return w
}

// lead serves one CONNECT: port 80 leads to plain, any other to secure.
func lead(c net.Conn, secure, plain string) {
	defer c.Close()
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil || r.Method != http.MethodConnect {
		return
	}
	to := secure
	if _, port, _ := net.SplitHostPort(r.RequestURI); port == "80" {
		to = plain
	}
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
	done := make(chan struct{})
	go func() { io.Copy(far, in); far.(*net.TCPConn).CloseWrite(); close(done) }()
	io.Copy(c, far)
	c.Close()
	<-done
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if w.instead != nil {
		w.instead.ServeHTTP(rw, r)
		return
	}
	io.Copy(io.Discard, r.Body)
	host, _, _ := strings.Cut(r.Host, ":")
	key := r.Header.Get("Idempotency-Key")
	w.mu.Lock()
	w.arrivals[host]++
	w.effects[host+" "+key]++
	n := w.effects[host+" "+key]
	handle := w.handle
	w.mu.Unlock()
	if handle != nil {
		handle(rw, r, n)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusCreated)
	fmt.Fprintf(rw, `{"host":%q,"effect":%d}`, host, n)
}

func (w *world) effect(host, key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[host+" "+key]
}

// config writes a configuration whose egress leads into the world. more is put
// after the routes.
func (w *world) config(routes string, egress string) string {
	w.t.Helper()
	file := filepath.Join(w.dir, "run.yaml")
	if _, err := ca.OpenOrInit(filepath.Join(w.dir, "ca"), ca.Options{}); err != nil {
		w.t.Fatal(err)
	}
	text := "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nledger: {url: 'sqlite://" + w.dir + "/l.db'}\nupstreams: {ca: '" + w.ca + "'}\n" +
		"egress: {listen: '127.0.0.1:0', parent: 'http://" + w.parent + "', ca: {dir: '" + w.dir + "/ca'}" + egress + "}\nroutes:\n" + routes
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// ran is what came of a run.
type ran struct {
	code           int
	stdout, stderr string
}

// runIn runs fencepost run to its end, in a folder of its own.
func runIn(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	cmd := exec.Command(binary(t), append([]string{"run"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(t.TempDir(), "state")), env...)
	err := cmd.Run()
	if _, is := err.(*exec.ExitError); err != nil && !is {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

const governedRoute = "- {name: api, match: {host: api.example.test}}\n"

func TestRunGovernsWhatItsCommandSends(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not on this machine")
	}
	w := newWorld(t)
	config := w.config(governedRoute, "")
	post := "curl -sS -X POST -H 'Idempotency-Key: k' -d amount=1 https://api.example.test/v1/charges"
	r := runIn(t, nil, "--config", config, "--", "sh", "-c", post+" && "+post+" && curl -sS https://other.example.test/ && curl -sS $FENCEPOST_URL/_fencepost/v1/operations/k; exit 3")
	if r.code != 3 || strings.Count(r.stdout, `{"host":"api.example.test","effect":1}`) != 2 || w.effect("api.example.test", "k") != 1 {
		t.Errorf("exit code %d, %d effects\n%s", r.code, w.effect("api.example.test", "k"), r.stdout)
	}
	if !strings.Contains(r.stdout, `"code":"target_forbidden"`) || !strings.Contains(r.stdout, `"state": "completed"`) {
		t.Errorf("%s", r.stdout)
	}
	for _, line := range []string{"fencepost: governed: 1 sent, 1 replayed, 0 refused, 0 not sent, 0 unknown", "fencepost: refused: other.example.test (not in egress.allow)"} {
		if !strings.Contains(r.stderr, line) {
			t.Errorf("the report does not say %q:\n%s", line, r.stderr)
		}
	}
	// The ledger outlives the run.
	r = runIn(t, nil, "--config", config, "--", "sh", "-c", post)
	if w.effect("api.example.test", "k") != 1 || !strings.Contains(r.stderr, "0 sent, 1 replayed") {
		t.Errorf("%+v", r)
	}
}

func TestRunSaysWhatWasNotGoverned(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not on this machine")
	}
	w := newWorld(t)
	config := w.config("- {name: api, match: {host: api.example.test}, key: {missing: pass}}\n", ", allow: [tunnel.example.test]")
	post := "curl -sS -X POST -d amount=1 https://api.example.test/v1/charges;"
	r := runIn(t, nil, "--config", config, "--", "sh", "-c", post+post+"curl -sS --cacert "+w.ca+" https://tunnel.example.test/")
	for _, line := range []string{"NOT governed: 2 mutations without a key went straight through: POST api.example.test (2)", "tunnelled, and not looked into: tunnel.example.test"} {
		if !strings.Contains(r.stderr, line) {
			t.Errorf("the report does not say %q:\n%s", line, r.stderr)
		}
	}
	if w.effect("api.example.test", "") != 2 || !strings.Contains(r.stdout, `{"host":"tunnel.example.test","effect":1}`) {
		t.Errorf("%s", r.stdout)
	}
}

func TestRunNamesWhatIsUnknownAndOpsSettlesIt(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not on this machine")
	}
	w := newWorld(t)
	w.handle = func(http.ResponseWriter, *http.Request, int) { panic(http.ErrAbortHandler) }
	config := w.config(governedRoute, "")
	r := runIn(t, nil, "--config", config, "--quiet", "--", "curl", "-sS", "-X", "POST", "-H", "Idempotency-Key: k", "-d", "x", "https://api.example.test/v1")
	if !strings.Contains(r.stdout, "outcome_unknown") || !strings.Contains(r.stderr, `unknown: POST api.example.test/v1 under key "k"`) || !strings.Contains(r.stderr, "fencepost ops show 'k' --ledger 'sqlite:///") {
		t.Errorf("%s\n%s", r.stdout, r.stderr)
	}
	ledger := "sqlite://" + w.dir + "/l.db"
	out, err := exec.Command(binary(t), "ops", "list", "--ledger", ledger).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "POST https://api.example.test/v1") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := exec.Command(binary(t), "ops", "resolve", "k", "--as", "abandoned", "--reason", "cancelled", "--ledger", ledger).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := exec.Command(binary(t), "ops", "list", "--ledger", ledger+"x").CombinedOutput(); err == nil || !strings.Contains(string(out), "no such file") {
		t.Errorf("a ledger that is not there: %v: %s", err, out)
	}
	r = runIn(t, nil, "--config", config, "--", "curl", "-sS", "-X", "POST", "-H", "Idempotency-Key: k", "-d", "x", "https://api.example.test/v1")
	if !strings.Contains(r.stdout, "operation_abandoned") {
		t.Errorf("%s", r.stdout)
	}
}

func TestRunEndsAsItsCommandDoes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"well":           {[]string{"true"}, 0},
		"with a code":    {[]string{"sh", "-c", "exit 42"}, 42},
		"by a signal":    {[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15},
		"not found":      {[]string{"no-such-command-anywhere"}, 127},
		"not executable": {[]string{"/etc/passwd"}, 126},
		"no command":     {nil, 2},
		"only flags":     {[]string{"--no-such-flag"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			args := c.args
			if name != "only flags" && args != nil {
				args = append([]string{"--"}, args...)
			}
			if r := runIn(t, nil, args...); r.code != c.code {
				t.Errorf("exit code %d, want %d: %s", r.code, c.code, r.stderr)
			}
		})
	}
}

// TestRunLeavesNothingBehind: no folder, no process, no listener; a stop of the
// command by a signal is passed on.
func TestRunLeavesNothingBehind(t *testing.T) {
	tmp := t.TempDir()
	state := filepath.Join(t.TempDir(), "state")
	cmd := exec.Command(binary(t), "run", "--", "sh", "-c", `trap 'echo got TERM; exit 9' TERM; echo "$SSL_CERT_FILE"; echo "$HTTPS_PROXY"; while :; do sleep 0.05; done`)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "XDG_STATE_HOME="+state)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func() string { lines.Scan(); return lines.Text() }
	bundle, proxy := next(), next()
	if fi, err := os.Stat(bundle); err != nil || !strings.HasPrefix(bundle, tmp) {
		t.Errorf("the bundle: %v %v", fi, err)
	} else if fi, _ := os.Stat(filepath.Dir(bundle)); fi.Mode().Perm()&0o077 != 0 {
		t.Errorf("its folder can be read by others: %v", fi.Mode())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "got TERM" {
		t.Errorf("the command heard %q", got)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d", code)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if c, err := net.DialTimeout("tcp", strings.TrimPrefix(proxy, "http://"), time.Second); err == nil {
		c.Close()
		t.Errorf("%s is still served", proxy)
	}
	for _, name := range []string{"run.db", "ca/ca-key.pem"} {
		if fi, err := os.Stat(filepath.Join(state, "fencepost", name)); err != nil || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
}

// TestRunUsesAProxyThatRuns: by the same configuration; then several commands can
// run at once.
func TestRunUsesAProxyThatRuns(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not on this machine")
	}
	w := newWorld(t)
	config := w.config(governedRoute, "")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	const token = "0123456789abcdef-agent"
	text := strings.Replace(string(b), "egress: {listen: '127.0.0.1:0'", fmt.Sprintf("callers: [{name: agent, token: '${AGENT}'}]\negress: {listen: '127.0.0.1:%d'", port), 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, []string{"AGENT=" + token}, "serve", "--config", config)
	post := []string{"curl", "-sS", "-X", "POST", "-H", "Idempotency-Key: k", "-d", "x", "https://api.example.test/v1"}
	env := []string{"AGENT=" + token, "FENCEPOST_TOKEN=" + token}
	for range 2 {
		r := runIn(t, env, append([]string{"--config", config, "--"}, post...)...)
		if r.code != 0 || !strings.Contains(r.stdout, `"effect":1`) || !strings.Contains(r.stderr, "using the egress proxy that runs at") {
			t.Errorf("%+v", r)
		}
	}
	if n := w.effect("api.example.test", "k"); n != 1 {
		t.Errorf("%d effects", n)
	}
	// Without the token, and with a wrong one, nothing goes through.
	if r := runIn(t, []string{"AGENT=" + token}, append([]string{"--config", config, "--"}, post...)...); r.code == 0 || !strings.Contains(r.stderr, "FENCEPOST_TOKEN") {
		t.Errorf("%+v", r)
	}
	if r := runIn(t, []string{"AGENT=" + token, "FENCEPOST_TOKEN=wrong"}, append([]string{"--config", config, "--"}, post...)...); r.code == 0 || !strings.Contains(r.stderr, "not the token of a caller") {
		t.Errorf("%+v", r)
	}
	if strings.Contains(p.logged(), token) {
		t.Error("the token is in the log")
	}
	// By another configuration it is not used: what that allows is not what this one
	// does.
	other := filepath.Join(w.dir, "other.yaml")
	if err := os.WriteFile(other, []byte(strings.Replace(text, "egress: {", "egress: {mode: report, ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runIn(t, env, "--config", other, "--", "true"); r.code != 1 || !strings.Contains(r.stderr, "runs by another configuration") {
		t.Errorf("%+v", r)
	}
	// The command finds the API of the proxy that it uses.
	if r := runIn(t, env, "--config", config, "--", "sh", "-c", `curl -sS -H "Fencepost-Authorization: Bearer $FENCEPOST_TOKEN" $FENCEPOST_URL/_fencepost/v1/operations/k`); !strings.Contains(r.stdout, `"state": "completed"`) {
		t.Errorf("%+v", r)
	}
	// A second proxy on the same ledger is told what to do.
	if err := os.WriteFile(config, []byte(strings.Replace(text, fmt.Sprintf("listen: '127.0.0.1:%d'", port), "listen: '127.0.0.1:0'", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runIn(t, env, "--config", config, "--", "true"); r.code != 1 || !strings.Contains(r.stderr, "To run several commands at once") {
		t.Errorf("%+v", r)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestRunDerivesKeysWhereItIsToldTo(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not on this machine")
	}
	w := newWorld(t)
	config := w.config("- {name: api, match: {host: '*.example.test'}, key: {missing: derive}}\n", "")
	post := "curl -sS -X POST -d amount=1 https://api.example.test/v1/charges;"
	r := runIn(t, nil, "--config", config, "--", "sh", "-c", post+post)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.arrivals["api.example.test"] != 1 || !strings.Contains(r.stderr, "1 sent, 1 replayed") || strings.Contains(r.stderr, "NOT governed") {
		t.Errorf("%d arrivals\n%s", w.arrivals["api.example.test"], r.stderr)
	}
}

// TestRunReplacesItsOwnAuthorityInTime: nobody else was told to trust it.
func TestRunReplacesItsOwnAuthorityInTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	if _, err := ca.Init(dir, ca.Options{Lifetime: ca.MinLifetime}); err != nil {
		t.Fatal(err)
	}
	old, err := ownAuthority(dir)
	if err != nil || old.NearExpiry() {
		t.Fatalf("%v", err)
	}
	// Its certificate begins an hour ago, for clocks that are behind: with the
	// shortest life it is in its last third now, or will be in 20 minutes.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	a, err := ownAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ownAuthority(dir)
	if err != nil || again.Fingerprint() != a.Fingerprint() {
		t.Errorf("a good authority was replaced: %v", err)
	}
}

func TestCheckLooksAtTheAuthority(t *testing.T) {
	w := newWorld(t)
	config := w.config(governedRoute, "")
	out, err := exec.Command(binary(t), "check", "--config", config).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "authority: ok, until ") {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.Chmod(filepath.Join(w.dir, "ca", ca.KeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = exec.Command(binary(t), "check", "--config", config).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "authority: refused") || !strings.Contains(string(out), "chmod 600") {
		t.Errorf("%v: %s", err, out)
	}
	p := launchRaw(t, nil, "serve", "--config", config)
	if code := p.ended(); code == 0 || !strings.Contains(p.logged(), "chmod 600") {
		t.Errorf("it serves with a key that others can read: %d %s", code, p.logged())
	}
}

// TestARunIsNotSharedByAnother: its proxy would end with its command, under the
// other's feet.
func TestARunIsNotSharedByAnother(t *testing.T) {
	w := newWorld(t)
	config := w.config(governedRoute, "")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "egress: {listen: '127.0.0.1:0'", fmt.Sprintf("egress: {listen: '127.0.0.1:%d'", freePort(t)), 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	first := exec.Command(binary(t), "run", "--config", config, "--", "sh", "-c", "echo up; read line")
	in, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	bufio.NewReader(out).ReadString('\n')
	if r := runIn(t, nil, "--config", config, "--", "true"); r.code != 1 || !strings.Contains(r.stderr, "another `fencepost run` has 127.0.0.1:") {
		t.Errorf("%+v", r)
	}
	in.Close()
	_ = first.Wait()
}

// TestAnAuthorityMustBeAbleToSign: one that is limited to other hosts is refused
// before a client meets it.
func TestAnAuthorityMustBeAbleToSign(t *testing.T) {
	w := newWorld(t)
	if _, err := ca.Init(filepath.Join(w.dir, "ca"), ca.Options{PermitDomains: []string{"other.test"}}); err != nil {
		t.Fatal(err)
	}
	for route, ok := range map[string]bool{
		"- {name: a, match: {host: other.test}}\n":     true,
		"- {name: a, match: {host: '*.other.test'}}\n": true,
		governedRoute: false,
		"- {name: a, match: {host: '*.example.test'}}\n":                     false,
		"- {name: a, match: {host: api.example.test}, enforce: false}\n":     true,
		"- {name: a, match: {host: api.example.test}, upstream: http://x}\n": true,
	} {
		out, err := exec.Command(binary(t), "check", "--config", w.config(route, "")).CombinedOutput()
		if (err == nil) != ok || !ok && !strings.Contains(string(out), "routes[0].match.host: no certificate for") {
			t.Errorf("%s: %v: %s", route, err, out)
		}
	}
}

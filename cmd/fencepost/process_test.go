package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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
)

// The tests in this package run the real binary as a real process, against a
// provider that counts effects on its own.

var build struct {
	once sync.Once
	path string
	err  error
}

// binary builds Fencepost once, with failpoints, which do nothing unless the
// environment asks for them.
func binary(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		dir, err := os.MkdirTemp("", "fencepost-test-")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "fencepost")
		out, err := exec.Command("go", "build", "-tags", "failpoint", "-o", build.path, ".").CombinedOutput()
		if err != nil {
			build.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if build.path != "" {
		os.RemoveAll(filepath.Dir(build.path))
	}
	os.Exit(code)
}

// process is a running fencepost serve.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	admin string
	done  chan struct{}
	mu    sync.Mutex
	log   bytes.Buffer
}

// launch starts fencepost with the arguments and waits until it serves.
func launch(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := launchRaw(t, env, args...)
	if p.url == "" {
		t.Fatalf("fencepost %v does not serve:\n%s", args, p.logged())
	}
	return p
}

// launchRaw is launch without the expectation that it comes to serve.
func launchRaw(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = exec.Command(binary(t), args...)
	p.cmd.Env = append(os.Environ(), env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			p.log.Write(append(lines.Bytes(), '\n'))
			p.mu.Unlock()
			var l struct{ Msg, Listen, Admin string }
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "serving" {
				p.url, p.admin = "http://"+l.Listen, "http://"+l.Admin
				close(serving)
			}
		}
		p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("log of fencepost %v:\n%s", args, p.logged())
		}
	})
	select {
	case <-serving:
	case <-p.done:
	case <-time.After(30 * time.Second):
		t.Fatalf("fencepost %v neither serves nor ends:\n%s", args, p.logged())
	}
	return p
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// ended waits for the process and returns its exit code, -1 for a signal.
func (p *process) ended() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("the process does not end:\n%s", p.logged())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s syscall.Signal) { p.cmd.Process.Signal(s) }

// reply is an answer read whole, or the error instead of one.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// code returns the problem code of an answer, or "".
func (r reply) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(r.body), &p)
	return p.Code
}

var testClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 60 * time.Second}

func send(method, url, key, body string) reply {
	req, err := http.NewRequest(method, url, struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		return reply{err: err}
	}
	req.ContentLength = int64(len(body))
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := testClient.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

func (p *process) post(key, body string) reply { return send("POST", p.url+"/v1/charges", key, body) }

// state is what a lookup says of a key, or "none".
func (p *process) state(key string) string {
	p.t.Helper()
	r := send("GET", p.url+"/_fencepost/v1/operations/"+key, "", "")
	if r.status == 404 {
		return "none"
	}
	var d struct{ State string }
	if r.err != nil || r.status != 200 || json.Unmarshal([]byte(r.body), &d) != nil {
		p.t.Fatalf("lookup of %s: %d %s %v", key, r.status, r.body, r.err)
	}
	return d.State
}

// provider is a third party in this process: it outlives every proxy and counts
// attempts and effects by key.
type provider struct {
	*httptest.Server
	mu       sync.Mutex
	attempts map[string]int
	effects  map[string]int
	// before runs when a request has begun, after when its effect has happened and
	// before it is answered.
	before, after func(key string)
}

func newProvider(t *testing.T) *provider {
	p := &provider{attempts: map[string]int{}, effects: map[string]int{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() { p.CloseClientConnections(); p.Close() })
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	p.attempts[key]++
	before, after := p.before, p.after
	p.mu.Unlock()
	if before != nil {
		before(key)
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	p.mu.Lock()
	p.effects[key]++
	n := p.effects[key]
	p.mu.Unlock()
	if after != nil {
		after(key)
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "effect %d of %s", n, key)
}

// counts returns attempts and effects of a key.
func (p *provider) counts(key string) (attempts, effects int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempts[key], p.effects[key]
}

// redisServer is a real Redis of this test's own.
type redisServer struct {
	t    *testing.T
	cmd  *exec.Cmd
	dir  string
	port int
	url  string
}

// startRedis starts a Redis server with an append-only file that is synced at
// every write. Without one on this machine the test is skipped, and says so.
func startRedis(t *testing.T) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("FENCEPOST_TEST_REDIS") == "require" {
			t.Fatal("redis-server is not installed, and FENCEPOST_TEST_REDIS=require asks for it")
		}
		t.Skip("redis-server is not installed; this test needs a real one")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &redisServer{t: t, dir: t.TempDir(), port: l.Addr().(*net.TCPAddr).Port}
	s.url = fmt.Sprintf("redis://127.0.0.1:%d/0", s.port)
	l.Close()
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *redisServer) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", "--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 500 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
		if err == nil {
			fmt.Fprint(c, "PING\r\n")
			b := make([]byte, 5)
			io.ReadFull(c, b)
			c.Close()
			if string(b) == "+PONG" {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatal("redis-server does not answer")
}

func (s *redisServer) stop() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// configFile writes a configuration in front of upstream and returns its name.
func configFile(t *testing.T, upstream, ledger, more string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fencepost.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nledger: {url: '%s', timeout: 1s, owner_deadline: 3s}\nroutes: [{name: all, upstream: '%s'}]\n%s", ledger, upstream, more)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// patientLedger gives the ledger of a configFile time that a busy machine does not use up:
// for tests in which it answers.
func patientLedger(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "timeout: 1s, owner_deadline: 3s", "timeout: 20s, owner_deadline: 90s", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that another process does.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for !f() {
		select {
		case <-ctx.Done():
			t.Fatalf("it never happened: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

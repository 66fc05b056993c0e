package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests in the files clients_*_test.go run the built Fencepost between
// clients and servers that were not written here. What cannot be had on this
// machine is skipped, or fails where FENCEPOST_TEST_CLIENTS=require.

// clientCall is one request as a client is asked to make it.
type clientCall struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
	Timeout int               `json:"timeout"` // seconds, 0 for the client's own
	Retries int               `json:"retries"`
}

func posting(url, key string, body string) clientCall {
	return clientCall{Method: "POST", URL: url, Body: []byte(body), Headers: map[string]string{"Idempotency-Key": key, "Content-Type": "application/json"}}
}

// realClient makes calls one after the other, over one connection where it can.
type realClient struct {
	name string
	do   func(*testing.T, ...clientCall) []reply
}

var realClients = []realClient{
	{"curl", curlCalls},
	{"Go net/http", goCalls},
	{"Node fetch", clientScript("node", "fetch.cjs")},
	{"Node http", clientScript("node", "http.cjs")},
	{"Python urllib.request", clientScript("python3", "urllib_request.py")},
	{"Python http.client", clientScript("python3", "http_client.py")},
}

// together runs the subtests at once, however few processors there are: they wait
// most of the time.
func together[T any](t *testing.T, rows []T, name func(T) string, test func(*testing.T, int, T)) {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, row := range rows {
		wg.Go(func() { t.Run(name(row), func(t *testing.T) { test(t, i, row) }) })
	}
}

// eachClient runs a test with every client at once.
func eachClient(t *testing.T, test func(t *testing.T, i int, cl realClient)) {
	t.Helper()
	together(t, realClients, func(cl realClient) string { return cl.name }, test)
}

// unavailable ends a test for want of what it needs.
func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if os.Getenv("FENCEPOST_TEST_CLIENTS") == "require" {
		t.Fatalf("%s cannot be had, and FENCEPOST_TEST_CLIENTS=require asks for it: %v", what, err)
	}
	t.Skipf("%s cannot be had on this machine, and this test needs the real one: %v", what, err)
}

// clientProgram is a command of this machine, kept from any proxy of its environment.
func clientProgram(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		unavailable(t, name, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*", "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// piped gives the command its standard input and returns what it printed.
func piped(cmd *exec.Cmd, stdin []byte) (stdout, stderr string, err error) {
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// clientScript is a client that is driven by a file of testdata/clients.
func clientScript(interpreter, file string) func(*testing.T, ...clientCall) []reply {
	return func(t *testing.T, calls ...clientCall) []reply {
		t.Helper()
		in, _ := json.Marshal(calls)
		out, problems, err := piped(clientProgram(t, interpreter, filepath.Join("testdata", "clients", file)), in)
		var ends []struct {
			Status  int
			Headers map[string]any
			Body    []byte
			Error   string
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &ends)
		}
		if err != nil || len(ends) != len(calls) {
			t.Fatalf("%s %s: %v\n%s%s", interpreter, file, err, out, problems)
		}
		replies := make([]reply, len(ends))
		for i, e := range ends {
			replies[i] = reply{status: e.Status, header: headerFields(e.Headers), body: string(e.Body)}
			if e.Error != "" {
				replies[i].err = errors.New(e.Error)
			}
		}
		return replies
	}
}

// headerFields are header fields as a script printed them.
func headerFields(m map[string]any) http.Header {
	h := http.Header{}
	for name, v := range m {
		if list, ok := v.([]any); ok {
			for _, one := range list {
				h.Add(name, fmt.Sprint(one))
			}
		} else {
			h.Set(name, fmt.Sprint(v))
		}
	}
	return h
}

func curlCalls(t *testing.T, calls ...clientCall) []reply {
	t.Helper()
	var replies []reply
	for _, c := range calls {
		args := []string{"-X", c.Method, "--max-time", strconv.Itoa(c.Timeout)}
		if c.Retries > 0 {
			// Only --fail makes curl take a 409 in flight for something to be retried.
			args = append(args, "--retry", strconv.Itoa(c.Retries), "--retry-all-errors", "--retry-delay", "0", "--fail-with-body")
		}
		for name, v := range c.Headers {
			args = append(args, "-H", name+": "+v)
		}
		if c.Method != "GET" {
			args = append(args, "--data-binary", "@-")
		}
		r, _ := curl(t, c.Body, append(args, c.URL)...)
		replies = append(replies, r)
	}
	return replies
}

// curl runs curl for one answer and returns it with what curl said about the
// exchange. An exit code other than 0 is the error of the reply.
func curl(t *testing.T, stdin []byte, args ...string) (r reply, verbose string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "body")
	args = append([]string{"-sS", "-v", "-o", file, "-w", "%{http_code}\n%{header_json}"}, args...)
	out, verbose, err := piped(clientProgram(t, "curl", args...), stdin)
	status, header, ok := strings.Cut(out, "\n")
	if !ok {
		t.Fatalf("curl: %v\n%s%s", err, out, verbose)
	}
	m := map[string]any{}
	_ = json.Unmarshal([]byte(header), &m)
	r.status, _ = strconv.Atoi(status)
	r.header, r.err = headerFields(m), err
	b, _ := os.ReadFile(file)
	r.body = string(b)
	return r, verbose
}

// goCalls uses Go's default transport, which by itself sends a request with an
// Idempotency-Key again when a kept connection turns out to be closed.
func goCalls(t *testing.T, calls ...clientCall) []reply {
	var replies []reply
	for _, c := range calls {
		cl := &http.Client{Timeout: time.Duration(c.Timeout) * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		var r reply
		for n := 0; ; n++ {
			r = goCall(cl, c)
			if n >= c.Retries || r.err == nil && r.status != 409 && r.status != 429 && r.status < 500 {
				break
			}
			wait, _ := strconv.Atoi(r.header.Get("Retry-After"))
			time.Sleep(max(300*time.Millisecond, time.Duration(wait)*time.Second))
		}
		replies = append(replies, r)
	}
	return replies
}

func goCall(cl *http.Client, c clientCall) reply {
	req, err := http.NewRequest(c.Method, c.URL, bytes.NewReader(c.Body))
	if err != nil {
		return reply{err: err}
	}
	for name, v := range c.Headers {
		req.Header.Set(name, v)
	}
	resp, err := cl.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

// toolDir is where tools are kept from one run of the tests to the next.
func toolDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "fencepost-test-tools"), err
}

// installed builds a command of a Go module outside of this one.
func installed(pkg, version string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := toolDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(dir, version)
		tool := filepath.Join(dir, filepath.Base(pkg))
		if _, err := os.Stat(tool); err == nil {
			return tool, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "install", pkg+"@"+version)
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go install: %w: %s", err, out)
		}
		return tool, nil
	})
}

var (
	httpbinTool = installed("github.com/mccutchen/go-httpbin/v2/cmd/go-httpbin", "v2.26.0")
	stripeTool  = installed("github.com/stripe/stripe-mock", "v0.203.0")
)

var (
	nodeModules = npmInstalled("clients", "npm")
	node24      = npmInstalled("node24", "node24")
)

// npmInstalled is a folder node_modules, kept under a name among the tools, with
// what the package-lock.json of a folder of testdata says.
func npmInstalled(folder, kept string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := toolDir()
		if err != nil {
			return "", err
		}
		lock, err := os.ReadFile(filepath.Join("testdata", folder, "package-lock.json"))
		if err != nil {
			return "", err
		}
		manifest, err := os.ReadFile(filepath.Join("testdata", folder, "package.json"))
		if err != nil {
			return "", err
		}
		done := filepath.Join(dir, kept, "node_modules", "done")
		if was, err := os.ReadFile(done); err == nil && bytes.Equal(was, lock) {
			return filepath.Dir(done), nil
		}
		dir = filepath.Join(dir, kept)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		cmd.Dir = dir
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o644), os.WriteFile(filepath.Join(dir, "package-lock.json"), lock, 0o644))
		if err != nil {
			return "", err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm ci: %w: %s", err, out)
		}
		return filepath.Dir(done), os.WriteFile(done, lock, 0o644)
	})
}

// freeAddress is a loopback address that nothing listens on. Its port is not one
// that the system gives to outgoing connections, so it stays free.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := "127.0.0.1:" + strconv.Itoa(20000+rand.IntN(10000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// startTool runs a server and waits until it listens on addr.
func startTool(t *testing.T, addr, tool string, args ...string) string {
	t.Helper()
	cmd := exec.Command(tool, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(tool), log.String())
		}
	})
	eventually(t, filepath.Base(tool)+" listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return "http://" + addr
}

func startHttpbin(t *testing.T) string {
	t.Helper()
	tool, err := httpbinTool()
	if err != nil {
		unavailable(t, "go-httpbin", err)
	}
	addr := freeAddress(t)
	_, port, _ := net.SplitHostPort(addr)
	return startTool(t, addr, tool, "-host", "127.0.0.1", "-port", port, "-max-body-size", "8388608", "-log-level", "ERROR")
}

func startStripeMock(t *testing.T) string {
	t.Helper()
	tool, err := stripeTool()
	if err != nil {
		unavailable(t, "stripe-mock", err)
	}
	addr := freeAddress(t)
	return startTool(t, addr, tool, "-http-addr", addr, "-https-addr", "127.0.0.1:0")
}

// stripeCall is a method of the Stripe SDK, such as customers.create.
type stripeCall struct {
	Resource string `json:"resource"`
	Method   string `json:"method"`
	Args     []any  `json:"args"`
}

// stripeEnd is what the SDK resolved with, or the error it threw.
type stripeEnd struct {
	Value  map[string]any
	Status int
	Error  *struct {
		Type, Code, Message string
		StatusCode          int
	}
	Headers map[string]any
}

func (e stripeEnd) String() string {
	if e.Error != nil {
		return fmt.Sprintf("error %+v", *e.Error)
	}
	return fmt.Sprintf("value of status %d with the members %v: %.200v", e.Status, slices.Sorted(maps.Keys(e.Value)), e.Value)
}

// stripeSDK is a Stripe SDK with its options.
type stripeSDK struct {
	Host    string `json:"host"`
	Port    string `json:"port"`
	Retries int    `json:"retries"` // maxNetworkRetries
	Timeout int    `json:"timeout"` // ms
	// AtOnce: the calls are not made one after the other.
	AtOnce bool         `json:"atOnce"`
	Calls  []stripeCall `json:"calls"`
}

// stripeModules is the folder in which node finds the SDK.
func stripeModules(t *testing.T) string {
	t.Helper()
	_, err := exec.LookPath("node")
	modules := ""
	if err == nil {
		modules, err = nodeModules()
	}
	if err != nil {
		unavailable(t, "the Stripe SDK", err)
	}
	return modules
}

// stripeCalls makes the calls at base, one after the other.
func stripeCalls(t *testing.T, base string, retries int, calls ...stripeCall) []stripeEnd {
	t.Helper()
	return stripeSDK{Retries: retries, Timeout: 20000, Calls: calls}.run(t, base)
}

func (s stripeSDK) run(t *testing.T, base string) []stripeEnd {
	t.Helper()
	s.Host, s.Port, _ = net.SplitHostPort(strings.TrimPrefix(base, "http://"))
	in, _ := json.Marshal(s)
	cmd := clientProgram(t, "node", filepath.Join("testdata", "clients", "stripe.cjs"))
	cmd.Env = append(cmd.Env, "NODE_PATH="+stripeModules(t))
	out, problems, err := piped(cmd, in)
	var ends []stripeEnd
	if err == nil {
		err = json.Unmarshal([]byte(out), &ends)
	}
	if err != nil || len(ends) != len(s.Calls) {
		t.Fatalf("the Stripe SDK: %v\n%s%s", err, out, problems)
	}
	return ends
}

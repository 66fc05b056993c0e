package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"fencepost/cmd/fencepost/internal/clientenv"
)

// runClient is a client of this machine as fencepost run gets it. Its command is
// given calls as METHOD URL KEY, makes them one after the other, and prints a line
// for each: status, protocol, Idempotent-Replayed, body.
type runClient struct {
	name    string
	command func(t *testing.T) []string
	// protocol is the one that it must speak where the host offers HTTP/2, or "" where
	// it cannot show it.
	protocol string
}

var runClients = []runClient{
	{name: "curl", protocol: "2", command: scripted("curl", "sh", "testdata/run/curl.sh", "--http2")},
	{name: "curl over HTTP/1.1", protocol: "1.1", command: scripted("curl", "sh", "testdata/run/curl.sh", "--http1.1")},
	{name: "wget", command: scripted("wget", "sh", "testdata/run/wget.sh")},
	{name: "Python urllib", command: scripted(debianPython, debianPython, "testdata/run/client.py", "urllib")},
	{name: "Python requests", command: withRequests},
	{name: "Node axios", command: npmClient("axios")},
	{name: "Node undici", protocol: "1.1", command: npmClient("undici")},
	{name: "Node undici with HTTP/2", protocol: "2", command: npmClient("undici-h2")},
	{name: "Node 24 https", command: onNode24("https")},
	{name: "Node 24 fetch", command: onNode24("fetch")},
	{name: "Go net/http", protocol: "2", command: goProgram},
	{name: "Java HttpURLConnection", command: onJava("HttpURLConnection")},
	{name: "Java HttpClient", protocol: "2", command: onJava("HttpClient")},
}

// scripted is a client that a file of testdata drives.
func scripted(program string, command ...string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		if _, err := exec.LookPath(program); err != nil {
			unavailable(t, program, err)
		}
		return command
	}
}

func withRequests(t *testing.T) []string {
	if out, err := exec.Command(debianPython, "-c", "import requests").CombinedOutput(); err != nil {
		unavailable(t, "python3-requests", fmt.Errorf("%w: %s", err, out))
	}
	return []string{debianPython, "testdata/run/client.py", "requests"}
}

// npmClient is a package of npm that goes by the proxy variables itself.
func npmClient(way string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		return []string{"env", "NODE_PATH=" + stripeModules(t), "node", "testdata/run/client.cjs", way}
	}
}

// onNode24 is a client that is part of Node, which knows of proxies from 22.21 and
// 24 on. Debian's is older; npm has newer ones as packages.
func onNode24(way string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		modules, err := node24()
		if err == nil {
			arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
			if arch == "" {
				arch = runtime.GOARCH
			}
			node := filepath.Join(modules, "node-"+runtime.GOOS+"-"+arch, "bin", "node")
			if _, err = os.Stat(node); err == nil {
				return []string{node, "testdata/run/client.cjs", way}
			}
		}
		unavailable(t, "Node 24", err)
		return nil
	}
}

// onJava needs a JDK, which is too large to be asked for.
func onJava(way string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		if _, err := exec.LookPath("javac"); err != nil {
			t.Skip("no JDK is on this machine; this test needs the real one")
		}
		return []string{"java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "testdata/run/Client.java", way}
	}
}

var goClient struct {
	once sync.Once
	out  []byte
	err  error
}

// goProgram is built once, into the folder that goes with this program.
func goProgram(t *testing.T) []string {
	file := filepath.Join(filepath.Dir(binary(t)), "client")
	goClient.once.Do(func() {
		goClient.out, goClient.err = exec.Command("go", "build", "-o", file, "testdata/run/client.go").CombinedOutput()
	})
	if goClient.err != nil {
		t.Fatalf("%v: %s", goClient.err, goClient.out)
	}
	return []string{file}
}

// line is what a client printed of one answer.
type line struct{ status, protocol, replayed, body string }

// trusting is an environment in which clients trust the world's own authority, as
// they would trust a company's.
func (w *world) trusting() []string {
	w.t.Helper()
	pem, err := os.ReadFile(w.ca)
	if err != nil {
		w.t.Fatal(err)
	}
	// Java has it in a store. Whatever makes one will do.
	dir := filepath.Join(w.t.TempDir(), "store")
	env, err := clientenv.Prepare(dir, clientenv.Settings{CA: pem, Base: []string{"SSL_CERT_FILE=" + w.ca, "SSL_CERT_DIR=/none", "JAVA_HOME=/none"}})
	if err != nil {
		w.t.Fatal(err)
	}
	out := []string{"SSL_CERT_FILE=" + w.ca, "NODE_EXTRA_CA_CERTS=" + w.ca}
	for _, name := range []string{"SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "WGETRC", "NO_PROXY", "no_proxy"} {
		out = append(out, name+"=") // of the machine's own
	}
	for _, v := range env.Variables {
		if v.Name == "JAVA_TOOL_OPTIONS" {
			out = append(out, v.Name+"="+v.Value)
		}
	}
	return out
}

// TestRunWithRealClients: a keyed request that is sent twice has one effect, and
// both get its answer; a host that is not allowed is refused with the reason; one
// that is tunnelled is trusted as before; what is on this machine is reached
// without the proxy.
func TestRunWithRealClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := w.config(governedRoute, ", allow: [tunnel.example.test]")
	env := w.trusting()
	var direct atomic.Int64
	local := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		direct.Add(1)
		if r.Header.Get("Via") != "" || r.URL.IsAbs() {
			rw.WriteHeader(http.StatusBadRequest)
		}
		io.WriteString(rw, "of this machine")
	}))
	t.Cleanup(local.Close)
	few := make(chan struct{}, 3) // of the interpreters that start at once
	together(t, runClients, func(c runClient) string { return c.name }, func(t *testing.T, i int, c runClient) {
		few <- struct{}{}
		defer func() { <-few }()
		command, key := c.command(t), fmt.Sprint("key-", i)
		post := []string{"POST", "https://api.example.test/v1/charges", key}
		args := append([]string{"--config", config, "--ledger", "sqlite://" + filepath.Join(t.TempDir(), "l.db"), "--"}, command...)
		args = append(append(args, post...), post...)
		args = append(args, "POST", "https://other.example.test/v1", key, "GET", "https://tunnel.example.test/"+key, "-", "GET", local.URL+"/"+key, "-")
		r := runIn(t, env, args...)
		got := linesOf(r.stdout)
		if r.code != 0 || len(got) != 5 {
			t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
		}
		for i, replayed := range []string{"-", "true"} {
			if want := (line{"201", got[i].protocol, replayed, `{"host":"api.example.test","effect":1}`}); got[i] != want {
				t.Errorf("answer %d is %+v, want %+v", i+1, got[i], want)
			}
			if c.protocol != "" && got[i].protocol != c.protocol {
				t.Errorf("answer %d came over HTTP/%s, want %s", i+1, got[i].protocol, c.protocol)
			}
		}
		if n := w.effect("api.example.test", key); n != 1 {
			t.Errorf("%d effects", n)
		}
		if got[2].status != "403" || !strings.Contains(got[2].body, `The host \"other.example.test\" is not one that may be reached.`) || w.effect("other.example.test", key) != 0 {
			t.Errorf("a host that is not allowed: %+v", got[2])
		}
		if got[3].status != "201" || !strings.Contains(got[3].body, `"host":"tunnel.example.test"`) {
			t.Errorf("a host that is tunnelled: %+v", got[3])
		}
		if got[4].status != "200" || got[4].body != "of this machine" {
			t.Errorf("a server of this machine: %+v", got[4])
		}
		for _, line := range []string{"fencepost: governed: 1 sent, 1 replayed, 0 refused, 0 not sent, 0 unknown", "fencepost: refused: other.example.test (not in egress.allow)", "fencepost: tunnelled, and not looked into: tunnel.example.test"} {
			if !strings.Contains(r.stderr, line+"\n") {
				t.Errorf("the report does not say %q:\n%s", line, r.stderr)
			}
		}
	})
}

func linesOf(stdout string) (out []line) {
	for l := range strings.Lines(stdout) {
		f := strings.SplitN(strings.TrimSpace(l), "\t", 4)
		if len(f) != 4 {
			continue
		}
		if f[2] == "" {
			f[2] = "-"
		}
		out = append(out, line{f[0], f[1], f[2], strings.TrimSpace(f[3])})
	}
	return out
}

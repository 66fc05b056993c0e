package clientenv

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/proxy/ca"
)

// client is a real client of this machine.
type client struct {
	name    string
	program string
	args    func(url string) []string
	needs   []string // a command that shows that what it needs is installed
	adds    bool     // its variable adds to what it trusts
	env     []string // beside what Prepare gives
}

func with(args ...string) func(string) []string {
	return func(url string) []string {
		out := slices.Clone(args)
		for i := range out {
			out[i] = strings.ReplaceAll(out[i], "URL", url)
		}
		return out
	}
}

const (
	pythonRequests = "import sys, requests; requests.get(sys.argv[1], timeout=30)"
	pythonUrllib   = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=30).read()"
	nodeHTTPS      = "require('https').get(process.argv[1], r => r.resume()).on('error', e => { console.error(e); process.exit(1) })"
	nodeFetch      = "fetch(process.argv[1]).catch(e => { console.error(e); process.exit(1) })"
)

var clients = []client{
	{name: "curl", program: "curl", args: with("-sS", "-m", "30", "URL/")},
	{name: "git", program: "git", args: with("ls-remote", "URL/repository")},
	{name: "wget", program: "wget", args: with("-q", "-O", "-", "-t", "1", "URL/")},
	{name: "openssl", program: "openssl", args: with("s_client", "-verify_return_error", "-ign_eof", "-alpn", "http/1.1", "-connect", "HOSTPORT", "-servername", "localhost")},
	{name: "python urllib", program: "python3", args: with("-c", pythonUrllib, "URL/")},
	{name: "python requests", program: "/usr/bin/python3", args: with("-c", pythonRequests, "URL/"), needs: []string{"/usr/bin/python3", "-c", "import requests"}},
	{name: "python requests with certifi", program: "python3", args: with("-c", pythonRequests, "URL/"), needs: []string{"python3", "-c", "import requests, certifi"}},
	{name: "pip", program: "python3", args: with("-m", "pip", "download", "--no-deps", "--no-cache-dir", "--retries", "0", "-d", "/nonexistent", "-i", "URL/simple", "x"), needs: []string{"python3", "-m", "pip", "--version"}},
	{name: "aws", program: "aws", args: with("--endpoint-url", "URL", "--no-sign-request", "--region", "x", "s3api", "list-buckets"), env: []string{"AWS_EC2_METADATA_DISABLED=true", "AWS_MAX_ATTEMPTS=1"}},
	{name: "node https", program: "node", args: with("-e", nodeHTTPS, "URL/"), adds: true},
	{name: "node fetch", program: "node", args: with("-e", nodeFetch, "URL/"), adds: true},
	{name: "npm", program: "npm", args: with("ping", "--registry", "URL/", "--fetch-retries", "0"), adds: true},
	{name: "Go", program: os.Args[0], args: with(goClient, "URL/")},
	{name: "cargo", program: "cargo", args: with("search", "--registry", "here", "x"), needs: []string{"cargo", "--version"},
		env: []string{"CARGO_REGISTRIES_HERE_INDEX=sparse+URL/", "CARGO_HTTP_TIMEOUT=30", "CARGO_NET_RETRY=0"}},
	{name: "java", program: "java", args: with("-Xshare:auto", "-XX:TieredStopAtLevel=1", "testdata/Client.java", "URL/"), needs: []string{"javac", "-version"}},
}

// goClient makes this test program a client of Go's net/http.
const goClient = "be-a-go-client"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == goClient {
		resp, err := http.Get(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		resp.Body.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// mustHave are the programs that FENCEPOST_TEST_CLIENTS=require asks for.
var mustHave = []string{"curl", "git", "wget", "openssl", "python3", "/usr/bin/python3", "node"}

// run makes the client ask for a URL, in exactly the environment given.
func (c client) run(t *testing.T, url string, env []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	args := c.args(url)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "HOSTPORT", strings.TrimPrefix(url, "https://"))
	}
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = env
	for _, kv := range c.env {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(kv, "URL", url))
	}
	cmd.Stdin = strings.NewReader("GET / HTTP/1.0\r\n\r\n") // for openssl
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%v\n%s", err, out)
}

// available ends the test where the client is not on this machine.
func (c client) available(t *testing.T, env []string) {
	t.Helper()
	_, err := exec.LookPath(c.program)
	if err == nil && c.needs != nil {
		cmd := exec.Command(c.needs[0], c.needs[1:]...)
		cmd.Env = env
		err = cmd.Run()
	}
	if err == nil {
		return
	}
	if os.Getenv("FENCEPOST_TEST_CLIENTS") == "require" && slices.Contains(mustHave, c.program) && !strings.Contains(c.name, "certifi") && c.name != "pip" {
		t.Fatalf("%s cannot be had, and FENCEPOST_TEST_CLIENTS=require asks for it: %v", c.name, err)
	}
	t.Skipf("%s cannot be had on this machine: %v", c.name, err)
}

// TestClientsTrustWhatTheyAreGiven: each real client, with the variables of Prepare
// and nothing else, accepts the authority, still accepts what it trusted before, and
// accepts nobody else.
func TestClientsTrustWhatTheyAreGiven(t *testing.T) {
	ours, system, stranger := authority(t), authority(t), authority(t)
	base := bare(t, system)
	// Java trusted what its JDK came with.
	store, _, err := trustStore(certsOf(system))
	if err != nil {
		t.Fatal(err)
	}
	jdk := t.TempDir()
	write(t, filepath.Join(jdk, "lib", "security", "cacerts"), 0o600, string(store))
	base = append(base, "JAVA_HOME="+jdk)
	if home := os.Getenv("HOME"); home != "" { // rustup's cargo is found by them
		base = append(base, "RUSTUP_HOME="+filepath.Join(home, ".rustup"))
	}
	env := prepare(t, Settings{CA: ours.PEM(), Base: base}).Environ(base)
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, 3)
	for _, c := range clients {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(c.name, func(t *testing.T) {
				c.available(t, env)
				for _, s := range []struct {
					what string
					of   *ca.Authority
					env  []string
					want bool
				}{
					{"an intercepted host", ours, env, true},
					{"a host that is tunnelled", system, env, !c.adds},
					{"a stranger's host", stranger, env, false},
					{"an intercepted host, without the variables", ours, base, false},
				} {
					server := serve(t, s.of)
					out := c.run(t, server.url, s.env)
					if got := server.hits.Load() > 0; got != s.want {
						t.Errorf("%s: accepted %v, want %v: %s", s.what, got, s.want, out)
					}
				}
			})
		})
	}
}

func certsOf(as ...*ca.Authority) *certs {
	c := &certs{}
	for _, a := range as {
		c.addPEM(a.PEM())
	}
	return c
}

// TestClientsKeepTheirOwnAdditions: what an adding variable named before is trusted
// still.
func TestClientsKeepTheirOwnAdditions(t *testing.T) {
	ours, theirs, system := authority(t), authority(t), authority(t)
	dir := t.TempDir()
	own := write(t, filepath.Join(dir, "own.pem"), 0o600, string(theirs.PEM()))
	base := append(bare(t, system), "NODE_EXTRA_CA_CERTS="+own)
	home := value(base, "HOME")
	write(t, filepath.Join(home, ".npmrc"), 0o600, "cafile="+own+"\n")
	write(t, filepath.Join(home, ".wgetrc"), 0o600, "ca_certificate = "+own+"\nuser_agent = mine\n")
	base = append(base, "GIT_SSL_CAINFO="+own, "REQUESTS_CA_BUNDLE="+own)
	env := prepare(t, Settings{CA: ours.PEM(), Base: base}).Environ(base)
	for _, c := range clients {
		if !slices.Contains([]string{"node https", "npm", "wget", "git", "python requests"}, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.available(t, env)
			for _, a := range []*ca.Authority{ours, theirs} {
				s := serve(t, a)
				if out := c.run(t, s.url, env); s.hits.Load() == 0 {
					t.Errorf("not accepted: %s", out)
				}
			}
		})
	}
}

func value(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			return v
		}
	}
	return ""
}

// TestClientsUseTheProxy: what is not on this machine goes through the proxy, what is
// does not, in every spelling.
func TestClientsUseTheProxy(t *testing.T) {
	listen := func(address string, h http.HandlerFunc) string {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return ""
		}
		s := &http.Server{Handler: h}
		t.Cleanup(func() { s.Close() })
		go s.Serve(l)
		return l.Addr().String()
	}
	var mu sync.Mutex
	asked := make(map[string]string) // host asked for, and the token it came with
	proxy := listen("127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.Host] = r.Header.Get("Proxy-Authorization")
		mu.Unlock()
		io.WriteString(w, "{}")
	})
	own := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }
	direct := map[string]string{}
	_, port, _ := net.SplitHostPort(listen("127.0.0.1:0", own))
	direct["http://127.0.0.1:"+port] = ""
	direct["http://localhost:"+port] = ""
	if six := listen("[::1]:0", own); six != "" {
		direct["http://"+six] = ""
	} else {
		t.Log("this machine has no IPv6 loopback: [::1] is not tried")
	}
	base := bare(t, authority(t))
	env := prepare(t, Settings{Base: base, Proxy: "http://caller:token-1@" + proxy}).Environ(base)
	for i, c := range clients {
		if !slices.Contains([]string{"curl", "wget", "git", "python urllib", "python requests", "Go"}, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.available(t, env)
			host := fmt.Sprintf("host%d.test", i)
			out := c.run(t, "http://"+host, env)
			mu.Lock()
			token, ok := asked[host]
			mu.Unlock()
			// git sends a token only when it is asked for one.
			if !ok || token == "" && c.name != "git" {
				t.Errorf("%s did not go through the proxy, or without the token (%q): %s", host, token, out)
			}
			for url := range direct {
				out := c.run(t, url, env)
				host := strings.TrimPrefix(url, "http://")
				mu.Lock()
				if _, ok := asked[host]; ok {
					t.Errorf("%s went through the proxy: %s", url, out)
				}
				delete(asked, host)
				mu.Unlock()
			}
		})
	}
}

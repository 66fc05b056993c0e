package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fencepost/proxy/ca"
)

// exitProcess is fencepost serve with an egress proxy.
type exitProcess struct {
	*process
	addr  string // of the egress listener
	roots *x509.CertPool
}

// serveExit starts it. more is put into the configuration's egress section, and
// rest, with the routes, after it.
func serveExit(t *testing.T, more, rest string) *exitProcess {
	t.Helper()
	dir := t.TempDir()
	_, err := ca.Init(filepath.Join(dir, "ca"), ca.Options{})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca", ca.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	x := &exitProcess{addr: fmt.Sprintf("127.0.0.1:%d", freePort(t)), roots: x509.NewCertPool()}
	x.roots.AppendCertsFromPEM(authority)
	config := filepath.Join(dir, "c.yaml")
	text := "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nledger: {url: 'sqlite://" + dir + "/l.db'}\n" +
		"egress: {listen: '" + x.addr + "', ca: {dir: '" + dir + "/ca'}" + more + "}\n" + rest
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	x.process = launch(t, nil, "serve", "--config", config)
	return x
}

// intoWorld is where an egress section leads to the world.
func (w *world) intoWorld() string { return ", parent: 'http://" + w.parent + "'" }

// trustingWorld lets upstreams be checked against the world's authority.
func (w *world) trustingWorld() string { return "upstreams: {ca: '" + w.ca + "'}\n" }

func (x *exitProcess) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", x.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(60 * time.Second))
	return c
}

// connect asks for a tunnel to a host, and returns the status of the answer.
func (x *exitProcess) connect(t *testing.T, host string) (net.Conn, int) {
	t.Helper()
	c := x.dial(t)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host)
	// One byte at a time: what follows belongs to the tunnel.
	var head bytes.Buffer
	for one := make([]byte, 1); !bytes.HasSuffix(head.Bytes(), []byte("\r\n\r\n")); {
		if _, err := c.Read(one); err != nil {
			t.Fatalf("CONNECT %s: %v after %q", host, err, head.String())
		}
		head.Write(one)
	}
	resp, err := http.ReadResponse(bufio.NewReader(&head), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	return c, resp.StatusCode
}

// intercepted is a tunnel whose TLS is ended by the proxy.
func (x *exitProcess) intercepted(t *testing.T, host string, protocols ...string) *tls.Conn {
	t.Helper()
	c, status := x.connect(t, host+":443")
	if status != 200 {
		t.Fatalf("CONNECT %s: %d", host, status)
	}
	s := tls.Client(c, &tls.Config{RootCAs: x.roots, ServerName: host, NextProtos: protocols})
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	return s
}

// healthy fails the test unless the process still serves, and never panicked.
func (x *exitProcess) healthy(t *testing.T) {
	t.Helper()
	if r := send("GET", x.admin+"/healthz", "", ""); r.status != 200 {
		t.Errorf("it is not healthy: %d %v", r.status, r.err)
	}
	if strings.Contains(x.logged(), "panic") {
		t.Errorf("it panicked:\n%s", x.logged())
	}
}

// TestNoOwnListenerIsReachedThroughTheEgressProxy: in no spelling, by either form of
// request, although everything on this machine is opened.
func TestNoOwnListenerIsReachedThroughTheEgressProxy(t *testing.T) {
	t.Parallel()
	var beside atomic.Int64
	neighbour := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { beside.Add(1) }))
	t.Cleanup(neighbour.Close)
	opened := "'127.0.0.0/8', '::1/128', '0.0.0.0/8', '::/128'"
	hosts := []string{
		"127.0.0.1", "127.0.0.2", "127.255.255.254", "localhost", "LOCALHOST", "localhost.", "0.0.0.0", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]",
		"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]",
		"2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.1", "127.0.0.1.", "127.0.0.1%00", "[::1%25lo]", "①②⑦.0.0.1",
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			opened += ", '" + netip.PrefixFrom(p.Addr(), p.Addr().BitLen()).String() + "'"
			hosts = append(hosts, strings.TrimSuffix(net.JoinHostPort(p.Addr().String(), ""), ":"))
		}
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	x := serveExit(t, ", allow: ['*'], any_port: true, allow_cidrs: ["+opened+"]", "routes: [{name: a, match: {host: a.example}}]\n")

	// What is not its own can be reached, and its own without the proxy.
	c := x.dial(t)
	fmt.Fprintf(c, "GET %s/ HTTP/1.1\r\nHost: x\r\n\r\n", neighbour.URL)
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 || beside.Load() != 1 {
		t.Fatalf("a server beside it: %v %v", resp, err)
	}
	listeners := map[string]struct{ addr, path string }{
		"admin":  {strings.TrimPrefix(x.admin, "http://"), "/metrics"},
		"lookup": {strings.TrimPrefix(x.url, "http://"), "/_fencepost/v1/operations/k"},
		"egress": {x.addr, "/_fencepost/v1/operations/k"},
	}
	for name, l := range listeners {
		direct := send("GET", "http://"+l.addr+l.path, "", "")
		if direct.err != nil || direct.status != 200 && direct.code() != "operation_not_found" {
			t.Fatalf("%s itself: %d %v", name, direct.status, direct.err)
		}
		_, port, _ := net.SplitHostPort(l.addr)
		for _, host := range hosts {
			to := host + ":" + port
			refused := func(how string, resp *http.Response, err error) {
				t.Helper()
				if err != nil {
					t.Errorf("%s of %s at %s: %v", how, name, to, err)
					return
				}
				body, _ := io.ReadAll(resp.Body)
				ours := strings.HasPrefix(resp.Header.Get("Proxy-Status"), "fencepost;")
				if !ours || resp.StatusCode != 400 && resp.StatusCode != 403 && resp.StatusCode != 502 {
					t.Errorf("%s of %s at %s: %d %s", how, name, to, resp.StatusCode, body)
				}
			}
			for _, method := range []string{"GET", "POST"} {
				c := x.dial(t)
				fmt.Fprintf(c, "%s http://%s%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\nIdempotency-Key: k\r\n\r\n", method, to, l.path, to)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err == nil && resp.StatusCode == 400 && resp.Header.Get("Proxy-Status") == "" {
					continue // net/http itself could not read the target
				}
				refused(method, resp, err)
			}
			c := x.dial(t)
			fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
			in := bufio.NewReader(c)
			resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
			if err == nil && resp.StatusCode == 400 && resp.Header.Get("Proxy-Status") == "" {
				continue
			}
			if err == nil && resp.StatusCode == 200 {
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", l.path, to)
				resp, err = http.ReadResponse(in, nil)
			}
			refused("a tunnel", resp, err)
		}
	}
	x.healthy(t)
}

// TestNoUpgradeToHTTP2WithoutTLS: it is neither granted nor passed on.
func TestNoUpgradeToHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		unavailable(t, "curl", err)
	}
	w := newWorld(t)
	seen := make(chan http.Header, 10)
	w.handle = func(rw http.ResponseWriter, r *http.Request, _ int) {
		seen <- r.Header.Clone()
		rw.WriteHeader(http.StatusCreated)
	}
	config := w.config("- {name: api, match: {host: api.example.test}}\n", ", allow: [plain.example.test]")
	call := "curl -sS --http2 -o /dev/null -w '%{http_code} %{http_version}\\n' "
	post := call + "-H 'Idempotency-Key: k' -d amount=1 http://api.example.test/v1/charges\n"
	r := runIn(t, nil, "--config", config, "--", "sh", "-ec", post+post+call+"http://plain.example.test/\n"+call+"-d x http://plain.example.test/")
	if r.code != 0 || r.stdout != strings.Repeat("201 1.1\n", 4) || w.effect("api.example.test", "k") != 1 {
		t.Errorf("%d, %d effects\n%s\n%s", r.code, w.effect("api.example.test", "k"), r.stdout, r.stderr)
	}
	for len(seen) > 0 {
		if h := <-seen; h.Get("Upgrade") != "" || h.Get("Http2-Settings") != "" {
			t.Errorf("the upstream was asked to upgrade: %v", h)
		}
	}
	// Without asking: the preface of HTTP/2, to the proxy and in a tunnel.
	x := serveExit(t, w.intoWorld(), w.trustingWorld()+"routes: [{name: api, match: {host: api.example.test}}]\n")
	tunnel, status := x.connect(t, "api.example.test:80")
	if status != 200 {
		t.Fatalf("CONNECT: %d", status)
	}
	for where, c := range map[string]net.Conn{"the proxy": x.dial(t), "a tunnel": tunnel} {
		io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		all, err := io.ReadAll(c)
		if ne, is := errors.AsType[net.Error](err); is && ne.Timeout() || !strings.HasPrefix(string(all), "HTTP/1.1 ") || strings.HasPrefix(string(all), "HTTP/1.1 2") {
			t.Errorf("to %s: %v %q", where, err, all)
		}
	}
	x.healthy(t)
}

// TestGarbageInTunnelsIsRefused: whatever a client sends where a request or TLS
// should be, nothing reaches the upstream, and its connection ends.
func TestGarbageInTunnelsIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := serveExit(t, w.intoWorld(), w.trustingWorld()+"limits: {header_timeout: 3s}\nroutes: [{name: api, match: {host: api.example.test}}]\n")
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	hidden := "POST /v1 HTTP/1.1\r\nHost: api.example.test\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx"
	for name, bytes := range map[string][]byte{
		"noise":                     append([]byte{0xff}, noise...),
		"zeros":                     make([]byte, 256<<10),
		"noise that begins as TLS":  append([]byte{0x16}, noise...),
		"a TLS alert":               {0x15, 3, 3, 0, 2, 2, 40},
		"a record of no length":     {0x16, 3, 1, 0, 0},
		"a request in a TLS record": append([]byte{0x16, 3, 1, byte(len(hidden) >> 8), byte(len(hidden))}, hidden...),
		"another protocol":          []byte("SSH-2.0-OpenSSH_9.2\r\n"),
		"a request without version": []byte("POST /v1\r\n\r\n"),
		"an endless line":           []byte("POST /" + strings.Repeat("x", 1<<20)),
		"a request after noise":     []byte("\x00\x00\r\n\r\n" + hidden),
		"a tunnel in a tunnel":      []byte("CONNECT other.example.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			c, status := x.connect(t, "api.example.test:443")
			if status != 200 {
				t.Fatalf("CONNECT: %d", status)
			}
			sent := make(chan struct{})
			go func() { c.Write(bytes); c.(*net.TCPConn).CloseWrite(); close(sent) }()
			all, err := io.ReadAll(c)
			if ne, is := errors.AsType[net.Error](err); is && ne.Timeout() {
				t.Error("the connection stays open")
			}
			if strings.Contains(string(all), "HTTP/1.1 2") {
				t.Errorf("%q", all)
			}
			c.Close()
			<-sent
		})
	}
	w.mu.Lock()
	if n := w.arrivals["api.example.test"]; n != 0 {
		t.Errorf("%d requests came through", n)
	}
	w.mu.Unlock()
	x.healthy(t)
}

// slowClient is a way to keep a connection.
type slowClient struct {
	name string
	open func(*testing.T) net.Conn
	once string // is sent at once
	drip string // is sent a byte at a time
}

// TestSlowClientsEnd: each way of being slow, or silent, is bounded by
// limits.header_timeout, and HTTP/2 without requests by limits.idle_timeout.
func TestSlowClientsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := serveExit(t, w.intoWorld(), w.trustingWorld()+"limits: {header_timeout: 3s, idle_timeout: 4s}\nroutes: [{name: api, match: {host: api.example.test}}]\n")
	const host = "api.example.test"
	endless := func(begin, then string) string { return begin + strings.Repeat(then, 200) }
	request := endless("POST /v1 HTTP/1.1\r\nHost: "+host+"\r\nX-Slow: ", "x")
	tunnel := func(t *testing.T) net.Conn {
		c, status := x.connect(t, host+":443")
		if status != 200 {
			t.Fatalf("CONNECT: %d", status)
		}
		return c
	}
	inside := func(protocol string) func(*testing.T) net.Conn {
		return func(t *testing.T) net.Conn { return x.intercepted(t, host, protocol) }
	}
	slow := []slowClient{
		{"silent", x.dial, "", ""},
		{"CONNECT", x.dial, "", endless("CONNECT "+host+":443 HTTP/1.1\r\nX-Slow: ", "x")},
		{"half of a CONNECT", x.dial, "CONNECT " + host + ":443 HT", ""},
		{"a proxied request", x.dial, "", endless("POST http://"+host+"/ HTTP/1.1\r\nX-Slow: ", "x")},
		{"silent in a tunnel", tunnel, "", ""},
		{"the beginning of TLS", tunnel, "", endless("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "x")},
		{"half of the beginning of TLS", tunnel, "\x16\x03\x01\x02\x00\x01\x00", ""},
		{"records of one byte", tunnel, "", strings.Repeat("\x16\x03\x01\x00\x01\x01", 50)},
		{"a request in a tunnel", tunnel, "", request},
		{"silent in TLS", inside("http/1.1"), "", ""},
		{"a request in TLS", inside("http/1.1"), "", request},
		{"half of a request in TLS", inside("http/1.1"), "POST /v1 HTTP/1.1\r\nHost: " + host + "\r\n", ""},
		{"silent in HTTP/2", inside("h2"), "", ""},
		{"HTTP/2 without a request", inside("h2"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", ""},
		{"half of a header in HTTP/2", inside("h2"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x83", ""},
	}
	together(t, slow, func(s slowClient) string { return s.name }, func(t *testing.T, _ int, s slowClient) {
		c := s.open(t)
		io.WriteString(c, s.once)
		ended := make(chan struct{})
		defer func() { c.Close(); <-ended }()
		go func() {
			defer close(ended)
			for i := range s.drip {
				if _, err := c.Write([]byte{s.drip[i]}); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond) // that is the attack
			}
		}()
		_, err := io.Copy(io.Discard, c)
		if ne, is := errors.AsType[net.Error](err); is && ne.Timeout() {
			t.Error("it is kept open")
		}
	})
	w.mu.Lock()
	if n := w.arrivals[host]; n != 0 {
		t.Errorf("%d requests came through", n)
	}
	w.mu.Unlock()
	x.healthy(t)
}

// TestSilentClientsGiveTheirPlacesBack: as many as there are tunnels, in a host that
// is looked into and in one that is refused.
func TestSilentClientsGiveTheirPlacesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most, patience = 20, 5 * time.Second
	x := serveExit(t, w.intoWorld()+", max_tunnels: "+strconv.Itoa(most), w.trustingWorld()+"limits: {header_timeout: "+patience.String()+"}\nroutes: [{name: api, match: {host: api.example.test}}]\n")
	conns, begun := make([]net.Conn, most), time.Now()
	for i := range conns {
		status := 0
		if conns[i], status = x.connect(t, []string{"api.example.test:443", "other.example.test:443"}[i%2]); status != 200 {
			t.Fatalf("tunnel %d: %d", i, status)
		}
	}
	// On a very slow machine the first has ended by now.
	if _, status := x.connect(t, "api.example.test:443"); status != 503 && time.Since(begun) < patience {
		t.Errorf("one too many: %d", status)
	}
	for i, c := range conns {
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("tunnel %d is kept open: %v", i, err)
		}
	}
	again := make([]net.Conn, 0, most)
	for range most {
		eventually(t, "a place is free", func() bool {
			c, status := x.connect(t, "api.example.test:443")
			again = append(again, c)
			return status == 200
		})
	}
	for _, c := range again {
		c.Close()
	}
	x.signal(syscall.SIGTERM)
	if code := x.ended(); code != 0 {
		t.Errorf("it stops with %d", code)
	}
}

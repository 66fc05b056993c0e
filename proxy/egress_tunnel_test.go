package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fencepost/keystore"
	"fencepost/policy"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestATunnelledRequestIsForItsOwnHost: CONNECT, SNI and Host say the same.
func TestATunnelledRequestIsForItsOwnHost(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}, {Name: "other", Host: "other.example", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, p.trusted(), nil, nil)
	host := strings.TrimPrefix(p.URL, "https://")
	for name, c := range map[string]struct{ sni, host, target string }{
		"another Host":          {"", "other.example", "/"},
		"another name in TLS":   {"other.example", host, "/"},
		"another URL":           {"", host, "https://other.example/"},
		"another port":          {"", "127.0.0.1:1", "/"},
		"a host that is none":   {"", "a b", "/"},
		"CONNECT in the tunnel": {"", host, "CONNECT"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := x.tunnel(t, host)
			s := tls.Client(conn, &tls.Config{RootCAs: x.authority.roots(), ServerName: c.sni, InsecureSkipVerify: true})
			method := "POST"
			if c.target == "CONNECT" {
				method, c.target = "CONNECT", "other.example:443"
			}
			fmt.Fprintf(s, "%s %s HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx", method, c.target, c.host)
			resp, err := http.ReadResponse(bufio.NewReader(s), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := 421
			switch name {
			case "a host that is none":
				want = 400 // net/http's
			case "CONNECT in the tunnel":
				want = 405
			}
			if resp.StatusCode != want {
				t.Errorf("%d, want %d", resp.StatusCode, want)
			}
		})
	}
	p.counted("k", 0)
}

// TestSmugglingThroughATunnel: what comes out of one is inspected like everything
// else.
func TestSmugglingThroughATunnel(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, p.trusted(), nil, nil)
	host := strings.TrimPrefix(p.URL, "https://")
	s := tls.Client(x.tunnel(t, host), &tls.Config{RootCAs: x.authority.roots(), ServerName: "127.0.0.1"})
	fmt.Fprintf(s, "POST / HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: k\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST /x HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: hidden\r\nContent-Length: 0\r\n\r\n", host, host)
	all, _ := io.ReadAll(s)
	if strings.Count(string(all), "HTTP/1.1 ") != 1 || !strings.HasPrefix(string(all), "HTTP/1.1 400") {
		t.Errorf("%s", all)
	}
	p.counted("k", 0)
	p.counted("hidden", 0)

	// A tunnel that begins before it was granted, and one that speaks plainly.
	conn := x.dialExit(t)
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\nPOST /early HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: early\r\nContent-Length: 1\r\n\r\nx", host, host)
	all, _ = io.ReadAll(io.LimitReader(conn, 100))
	if !strings.Contains(string(all), "200 Connection established") || strings.Contains(string(all), "HTTP/1.1 201") {
		t.Errorf("%s", all)
	}
	// A body on CONNECT is the beginning of the tunnel, never a request of its own.
	conn = x.dialExit(t)
	fmt.Fprintf(conn, "CONNECT other.example:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\nGET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", host)
	if all, _ = io.ReadAll(io.LimitReader(conn, 40)); strings.Contains(string(all), "HTTP/1.1 201") {
		t.Errorf("%s", all)
	}
	p.counted("early", 0)
}

// TestPlainHTTPInATunnelIsGoverned: some clients open tunnels for everything.
func TestPlainHTTPInATunnelIsGoverned(t *testing.T) {
	p := newProvider(t, nil)
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, nil, nil, nil)
	host := strings.TrimPrefix(p.URL, "http://")
	for range 2 {
		conn := x.tunnel(t, host)
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx", host)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 201 {
			t.Fatalf("%v %v", resp, err)
		}
	}
	p.counted("k", 1)
}

func TestWebSocketWorksInAndBesideAnInterception(t *testing.T) {
	up := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		rw.Flush()
		io.Copy(c, rw)
	}))
	defer up.Close()
	roots := x509.NewCertPool()
	roots.AddCert(up.Certificate())
	host := strings.TrimPrefix(up.URL, "https://")
	for _, governed := range []bool{true, false} {
		rule := reaching(up.URL)
		rule.Allow = []string{"127.0.0.1"}
		x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: governed}}, rule: rule, cidrs: loopback}, roots, nil, nil)
		trusted := x.authority.roots()
		if !governed {
			trusted = roots
		}
		s := tls.Client(x.tunnel(t, host), &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"})
		fmt.Fprintf(s, "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n", host)
		in := bufio.NewReader(s)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatalf("governed %v: %v %v", governed, resp, err)
		}
		fmt.Fprint(s, "hello\n")
		if line, err := in.ReadString('\n'); err != nil || line != "hello\n" {
			t.Errorf("governed %v: %q %v", governed, line, err)
		}
		// Nothing else is switched to.
		s = tls.Client(x.tunnel(t, host), &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"})
		if governed {
			fmt.Fprintf(s, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n", host)
			resp, err := http.ReadResponse(bufio.NewReader(s), nil)
			if err == nil && resp.StatusCode == 101 && resp.Header.Get("Upgrade") == "h2c" {
				t.Error("h2c was switched to")
			}
		}
	}
}

// TestAStopDrainsInterceptedRequests: over HTTP/1.1 and HTTP/2, and does not wait
// for a tunnel that nobody can look into.
func TestAStopDrainsInterceptedRequests(t *testing.T) {
	release := make(chan struct{})
	p, _ := secureProvider(t, false, nil)
	p.handle = func(w http.ResponseWriter, r *http.Request) { <-release; w.WriteHeader(204) }
	rule := reaching(p.URL)
	rule.Allow = []string{"localhost"}
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: rule, cidrs: []string{"127.0.0.0/8", "::1/128"}}, p.trusted(), nil, nil)
	idle := x.tunnel(t, fmt.Sprintf("localhost:%d", portOf(strings.TrimPrefix(p.URL, "https://"))))
	answers := make(chan got, 2)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		go func() { answers <- ask(t, x.client(protocol), "POST", p.URL+"/", "k-"+protocol[5:6], "x") }()
	}
	p.await("k-1")
	p.await("k-2")
	stopped := make(chan error, 1)
	go func() { stopped <- x.egress.Shutdown(context.Background()) }()
	select {
	case err := <-stopped:
		t.Fatalf("it stopped before the requests were answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	for range 2 {
		(<-answers).ok(t, 204)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel is still open")
	}
}

// TestManyIdleTunnels: they hold no buffers, and one too many is told so.
func TestManyIdleTunnels(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	rule := reaching(p.URL)
	rule.Allow = []string{"127.0.0.1"}
	const most = 200
	x := leave(t, exitRules{rule: rule, cidrs: loopback}, nil, nil, func(o *EgressOptions) { o.MaxTunnels = most })
	host := strings.TrimPrefix(p.URL, "https://")
	conns := make([]net.Conn, most)
	for i := range conns {
		conns[i] = x.tunnel(t, host)
	}
	if _, status := x.connect(t, host); status != 503 {
		t.Errorf("one too many: %d", status)
	}
	conns[0].Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, status := x.connect(t, host); status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a closed tunnel's place is never given back")
		}
	}
	ask(t, x.client("HTTP/1.1"), "GET", "http://other.example/", "", "").is(t, 403, codeForbidden, retryNever)
}

func TestASilentTunnelEnds(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	rule := reaching(p.URL)
	rule.Allow = []string{"127.0.0.1"}
	x := leave(t, exitRules{rule: rule, cidrs: loopback}, nil, nil, func(o *EgressOptions) { o.TunnelIdle = 100 * time.Millisecond })
	conn := x.tunnel(t, strings.TrimPrefix(p.URL, "https://"))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("it gave something")
	} else if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		t.Error("it stays open for ever")
	}
}

// TestAClientThatDoesNotTrustIsTold: in the log, since it hears nothing of ours.
func TestAClientThatDoesNotTrustIsTold(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, p.trusted(), nil, nil)
	c := x.client("HTTP/1.1")
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = p.trusted()
	if g := ask(t, c, "POST", p.URL+"/", "k", "x"); g.err == nil {
		t.Fatalf("%d", g.status)
	}
	for deadline := time.Now().Add(10 * time.Second); x.proxy.Tally().Untrusting["127.0.0.1"] == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody noticed")
		}
	}
	if !strings.Contains(x.log.String(), "fencepost ca env") {
		t.Errorf("%s", x.log)
	}
	p.counted("k", 0)
}

// TestATunnelWhoseOtherSideTakesNothingEnds: the destination ends its direction and
// reads no more, while the client goes on sending.
func TestATunnelWhoseOtherSideTakesNothingEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.(*net.TCPConn).CloseWrite()
			<-t.Context().Done()
			c.Close()
		}
	}()
	rule := reaching("http://" + l.Addr().String())
	rule.Allow = []string{"*"}
	x := leave(t, exitRules{rule: rule, cidrs: loopback}, nil, nil, func(o *EgressOptions) { o.TunnelIdle = 100 * time.Millisecond })
	conn := x.tunnel(t, l.Addr().String())
	for part := make([]byte, 64<<10); ; {
		if _, err := conn.Write(part); err != nil {
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				t.Error("the tunnel still stands")
			}
			return
		}
	}
}

// TestAnEgressRouteIsReconciledToo, on the schedule and when an operator asks.
func TestAnEgressRouteIsReconciledToo(t *testing.T) {
	b := newBank(t)
	b.lose = aborts
	route := policy.Route{Name: "api", Host: "127.0.0.1", Path: "/v1/", Enforce: true}
	reconciled(t, b, 0)(&route)
	x := leave(t, exitRules{routes: []policy.Route{route}, rule: reaching(b.URL), cidrs: loopback}, nil, nil, nil)
	ask(t, x.client("HTTP/1.1"), "POST", b.URL+"/v1/charges", "k", order("o")).is(t, 502, codeUnknown, retryAfterResolution)
	if err := x.proxy.ReconcileDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.reads("k", keystore.Completed)
}

// TestATokenThatIsWithdrawnEndsItsTunnels: connections outlive reloads, and what is
// allowed does not outlive the token.
func TestATokenThatIsWithdrawnEndsItsTunnels(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	rules := func(token string) *policy.Callers {
		c, err := policy.NewCallers([]policy.Caller{{Name: "a", Token: token}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, p.trusted(), func(c *Config) { c.Rules.Callers = rules("0123456789abcdef") }, nil)
	c := x.client("HTTP/1.1")
	c.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: x.addr, User: url.UserPassword("x", "0123456789abcdef")})
	ask(t, c, "POST", p.URL+"/", "k", "x").ok(t, 201)
	next := x.proxy.rules.Load().Rules
	next.Callers = rules("fedcba9876543210")
	if err := x.proxy.Reload(next); err != nil {
		t.Fatal(err)
	}
	ask(t, c, "POST", p.URL+"/", "k2", "x").is(t, 401, codeCallerUnknown, retryNever)
	p.counted("k2", 0)
}

// TestTheCaseOfAPathLeadsRoundNoRoute: many servers do not tell /V1/ from /v1/.
func TestTheCaseOfAPathLeadsRoundNoRoute(t *testing.T) {
	p, _ := secureProvider(t, true, nil)
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Path: "/v1/", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, p.trusted(), nil, nil)
	c := x.client("HTTP/1.1")
	ask(t, c, "POST", p.URL+"/V1/charges", "k", "x").is(t, 404, codeNoRoute, retryNever)
	p.counted("k", 0)
	ask(t, c, "GET", p.URL+"/V1/charges", "", "").ok(t, 201)
	ask(t, c, "POST", p.URL+"/v2/charges", "k", "x").ok(t, 201)
}

// TestATunnelToOneHostIsNoneToAGovernedOne: behind one address there are many hosts, and
// TLS says which is meant.
func TestATunnelToOneHostIsNoneToAGovernedOne(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	rule := reaching(p.URL)
	rule.Allow = []string{"127.0.0.1"}
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "api.payments.example", Enforce: true}}, rule: rule, cidrs: loopback}, p.trusted(), nil, nil)
	for name, want := range map[string]int{"api.payments.example": 0, "API.payments.example": 0, "other.example": 1, "": 1} {
		for _, size := range []int{1, 100, 1 << 16} {
			conn := x.tunnel(t, p.URL[8:])
			c := tls.Client(dribble{conn, size}, &tls.Config{ServerName: name, InsecureSkipVerify: true})
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: %s%d\r\nContent-Length: 0\r\n\r\n", name, name, size)
			_, err := http.ReadResponse(bufio.NewReader(c), nil)
			if (err == nil) != (want == 1) {
				t.Errorf("%q: %v", name, err)
			}
			p.counted(name+fmt.Sprint(size), want)
		}
	}
	if !strings.Contains(x.log.String(), errFronted.Error()) {
		t.Error("nobody is told")
	}
}

// dribble writes in parts of at most so many bytes.
type dribble struct {
	net.Conn
	size int
}

func (d dribble) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var m int
		m, err = d.Conn.Write(b[:min(d.size, len(b))])
		n, b = n+m, b[m:]
	}
	return n, err
}

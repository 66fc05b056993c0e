package proxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// testAuthority signs for anything at once, and remembers what it was asked for.
type testAuthority struct {
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	mu    sync.Mutex
	asked []string
}

func newTestAuthority(t *testing.T) *testAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &testAuthority{key: key, cert: cert}
}

func (a *testAuthority) Leaf(_ context.Context, name string) (*tls.Certificate, error) {
	a.mu.Lock()
	a.asked = append(a.asked, name)
	a.mu.Unlock()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour)}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}, err
}

func (a *testAuthority) NotAfter() time.Time { return a.cert.NotAfter }

func (a *testAuthority) roots() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// exit is a running egress proxy.
type exit struct {
	*rig
	egress    *Egress
	authority *testAuthority
	addr      string
}

// exitRules are the rules of a test's egress proxy.
type exitRules struct {
	routes []policy.Route
	rule   policy.EgressRule
	cidrs  []string
}

// reaching allows the ports of loopback servers, so that they can stand for
// servers elsewhere.
func reaching(urls ...string) policy.EgressRule {
	rule := policy.EgressRule{Ports: []uint16{443, 80}}
	for _, s := range urls {
		u, _ := url.Parse(s)
		d, err := policy.ParseDestination(u.Host, 443)
		if err != nil {
			panic(err)
		}
		rule.Ports = append(rule.Ports, d.Port)
	}
	return rule
}

// leave starts an egress proxy. Upstreams are trusted by the roots given; every
// name leads to loopback.
func leave(t *testing.T, rules exitRules, roots *x509.CertPool, adjust func(*Config), adjustOptions func(*EgressOptions)) *exit {
	t.Helper()
	for i := range rules.routes {
		rules.routes[i].Egress = true
		if rules.routes[i].Timeout == 0 {
			rules.routes[i].Timeout = 10 * time.Second
		}
	}
	routes := table(t, rules.routes...)
	egress, err := policy.NewEgress(rules.rule, routes)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, "http://127.0.0.1:1", nil, func(c *Config) {
		c.Rules.Egress, c.Rules.EgressRoutes = egress, routes
		c.Upstream.Roots = roots
		for _, s := range rules.cidrs {
			c.Egress.AllowCIDRs = append(c.Egress.AllowCIDRs, netip.MustParsePrefix(s))
		}
		if adjust != nil {
			adjust(c)
		}
	})
	x := &exit{rig: r, authority: newTestAuthority(t)}
	o := EgressOptions{
		Authority: x.authority,
		Server:    ServerOptions{HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10, Logger: r.proxy.log},
	}
	if adjustOptions != nil {
		adjustOptions(&o)
	}
	if x.egress, err = r.proxy.NewEgress(o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x.addr = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- x.egress.Serve(l) }()
	t.Cleanup(func() {
		x.egress.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return x
}

var loopback = []string{"127.0.0.0/8"}

// client is one that goes through the proxy and trusts its authority, and roots.
func (x *exit) client(protocol string, also ...*x509.Certificate) *http.Client {
	roots := x.authority.roots()
	for _, c := range also {
		roots.AddCert(c)
	}
	var p http.Protocols
	p.SetHTTP1(protocol == "HTTP/1.1")
	p.SetHTTP2(protocol == "HTTP/2.0")
	return &http.Client{
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: x.addr}), Protocols: &p, DisableCompression: true,
			TLSClientConfig: &tls.Config{RootCAs: roots},
		},
	}
}

// ask sends one request.
func ask(t *testing.T, c *http.Client, method, url, key, body string) got {
	t.Helper()
	req, err := http.NewRequest(method, url, struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		t.Fatal(err)
	}
	if req.ContentLength = int64(len(body)); body == "" {
		req.Body = http.NoBody
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.Do(req)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	g := got{status: resp.StatusCode, header: resp.Header, body: string(b), err: err}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		if jerr := json.Unmarshal(b, &g.prob); jerr != nil {
			g.err = jerr
		}
	}
	return g
}

// secureServer is a provider with a certificate for the name localhost-like tests
// use: 127.0.0.1.
func (p *provider) trusted() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(p.Certificate())
	return roots
}

func TestAGovernedHostIsInterceptedAndFenced(t *testing.T) {
	p, _ := secureProvider(t, true, nil)
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Path: "/v1/", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, p.trusted(), nil, nil)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		c := x.client(protocol)
		key := "k-" + protocol[5:6]
		for i := range 3 {
			g := ask(t, c, "POST", p.URL+"/v1/charges", key, "x")
			if g.ok(t, 201); (g.header.Get("Idempotent-Replayed") == "true") != (i > 0) || g.header.Get("Fencepost-State") != "completed" {
				t.Errorf("%s: request %d: %v", protocol, i, g.header)
			}
			// Sent once means counted bytes: HTTP/1.1 to the upstream.
			if g.header.Get("X-Proto") != "HTTP/1.1" && i == 0 {
				t.Errorf("the upstream saw %s", g.header.Get("X-Proto"))
			}
		}
		ask(t, c, "POST", p.URL+"/v1/charges", key, "other").is(t, 422, codeConflict, retryNewKey)
		ask(t, c, "POST", p.URL+"/v1/charges", "", "x").is(t, 400, codeKeyRequired, retryNewKey)
		p.counted(key, 1)
		// What no route governs passes on the same connection, over HTTP/2.
		g := ask(t, c, "GET", p.URL+"/v1/charges", "", "")
		if g.ok(t, 201); g.header.Get("X-Proto") != "HTTP/2.0" || g.header.Get("Fencepost-State") != "" {
			t.Errorf("%v", g.header)
		}
		g = ask(t, c, "POST", p.URL+"/other", "", "x")
		if g.ok(t, 201); g.header.Get("X-Proto") != "HTTP/2.0" {
			t.Errorf("%v", g.header)
		}
	}
	// The lookup knows the effect.
	if d := x.lookup("k-1"); d.Target.Scheme != "https" || "https://"+d.Target.Host != p.URL || d.Target.Path != "/v1/charges" {
		t.Errorf("%+v", d.Target)
	}
	if n := x.proxy.Tally(); n.Sent != 2 || n.Replayed != 4 || n.Ungoverned["127.0.0.1 POST"] != 2 || len(n.Unknown) != 0 || n.Refused["idempotency_conflict"] != 2 {
		t.Errorf("%+v", n)
	}
}

// TestWhatIsAllowedAndNotGovernedIsUntouched: the client sees the server's own
// certificate.
func TestWhatIsAllowedAndNotGovernedIsUntouched(t *testing.T) {
	p, _ := secureProvider(t, true, nil)
	rule := reaching(p.URL)
	rule.Allow = []string{"127.0.0.1"}
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "api.example.com", Enforce: true}}, rule: rule, cidrs: loopback}, nil, nil, nil)
	c := x.client("HTTP/2.0", p.Certificate())
	ask(t, c, "POST", p.URL+"/", "k", "x").ok(t, 201)
	ask(t, c, "POST", p.URL+"/", "k", "x").ok(t, 201)
	if p.effects["k"] != 2 {
		t.Errorf("%d effects: it was governed", p.effects["k"])
	}
	if len(x.authority.asked) != 0 {
		t.Errorf("a certificate was made for %v", x.authority.asked)
	}
	if n := x.proxy.Tally(); n.Tunnelled["127.0.0.1"] != 1 {
		t.Errorf("%+v", n)
	}
}

// TestARefusedHostShowsTheReason: inside the TLS that the client asked for, since
// clients hide what CONNECT is answered with.
func TestARefusedHostShowsTheReason(t *testing.T) {
	p := newProvider(t, nil)
	x := leave(t, exitRules{rule: reaching(p.URL), cidrs: loopback}, nil, nil, nil)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		g := ask(t, x.client(protocol), "POST", "https://other.example/v1", "k", "x")
		g.is(t, 403, codeForbidden, retryNever)
		if !strings.Contains(g.body, `\"other.example\"`) || !strings.Contains(g.body, "egress.allow") {
			t.Errorf("%s", g.body)
		}
	}
	ask(t, x.client("HTTP/1.1"), "POST", p.URL+"/v1", "k", "x").is(t, 403, codeForbidden, retryNever)
	p.counted("k", 0)
	if n := x.proxy.Tally(); n.RefusedHosts["other.example"] != 2 || n.RefusedHosts["127.0.0.1"] != 1 {
		t.Errorf("%+v", n)
	}
}

func TestReportModeLetsThroughAndSays(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	rule := reaching(p.URL)
	rule.Report = true
	x := leave(t, exitRules{rule: rule, cidrs: loopback}, nil, nil, nil)
	ask(t, x.client("HTTP/1.1", p.Certificate()), "POST", p.URL+"/", "k", "x").ok(t, 201)
	if n := x.proxy.Tally(); n.Reported["127.0.0.1"] == 0 || !strings.Contains(x.log.String(), "egress.mode is report") {
		t.Errorf("%+v", n)
	}
	// Not for what is dangerous, though.
	y := leave(t, exitRules{rule: rule}, nil, nil, nil)
	if g := ask(t, y.client("HTTP/1.1"), "POST", p.URL+"/", "k", "x"); g.err == nil {
		t.Errorf("a private address was reached in report mode: %d", g.status)
	}
	p.counted("k", 1)
}

func TestPlainHTTPIsGovernedToo(t *testing.T) {
	p := newProvider(t, nil)
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Path: "/v1/", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, nil, nil, nil)
	c := x.client("HTTP/1.1")
	for range 2 {
		ask(t, c, "POST", p.URL+"/v1/charges", "k", "x").ok(t, 201)
	}
	p.counted("k", 1)
	ask(t, c, "GET", p.URL+"/other", "", "").ok(t, 201)
	if h := p.headers[""]; h.Get("Proxy-Connection") != "" || h.Get("Via") != "" || h.Get("X-Forwarded-For") != "" {
		t.Errorf("the upstream sees the proxy: %v", h)
	}
}

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

// tunnel opens a tunnel to a host and returns the connection.
func (x *exit) tunnel(t *testing.T, host string) net.Conn {
	t.Helper()
	conn, status := x.connect(t, host)
	if status != 200 {
		t.Fatalf("CONNECT %s: %d", host, status)
	}
	return conn
}

func (x *exit) connect(t *testing.T, host string, header ...string) (net.Conn, int) {
	t.Helper()
	conn, err := net.Dial("tcp", x.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", host, host, strings.Join(header, ""))
	// One byte at a time: what follows belongs to the tunnel.
	var head strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(head.String(), "\r\n\r\n"); {
		if _, err := conn.Read(one); err != nil {
			t.Fatalf("CONNECT %s: %v after %q", host, err, head.String())
		}
		head.Write(one)
	}
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head.String())), &http.Request{Method: "CONNECT"})
	if err != nil {
		t.Fatal(err)
	}
	return conn, resp.StatusCode
}

// TestNoAddressOfOurOwnIsReached: neither special ones, in any spelling, nor this
// process's listeners, whatever is opened.
func TestNoAddressOfOurOwnIsReached(t *testing.T) {
	p := newProvider(t, nil)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(p.URL, "http://"))
	rule := reaching(p.URL)
	rule.Allow = []string{"*"}
	x := leave(t, exitRules{rule: rule}, nil, nil, nil)
	c := x.client("HTTP/1.1")
	for _, host := range []string{
		"127.0.0.1", "localhost", "localhost.", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
		"10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "169.254.169.254", "[fd00:ec2::254]", "[fe80::1]", "168.63.129.16", "224.0.0.1", "240.0.0.1", "198.18.0.1",
	} {
		g := ask(t, c, "POST", "http://"+host+":"+port+"/", "k", "x")
		if g.err != nil || g.status != 403 && g.status != 502 {
			t.Errorf("%s: %d %v %s", host, g.status, g.err, g.body)
		}
		if !strings.Contains(host, "localhost") && host != "[::]" {
			g.is(t, 403, codeForbidden, retryNever)
		}
		if _, status := x.connect(t, host+":"+port); status != 403 && status != 502 {
			t.Errorf("CONNECT %s: %d", host, status)
		}
	}
	for _, host := range []string{"2130706433", "0x7f000001", "127.1", "0177.0.0.1", "127.0.0.0x1", "[fe80::1%25lo]", "127.0.0.1\\@x", "a..b", "user@127.0.0.1"} {
		conn := x.dialExit(t)
		fmt.Fprintf(conn, "POST http://%s:%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", host, port)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != 400 && resp.StatusCode != 403 {
			t.Errorf("%s: %v %v", host, resp, err)
		}
		if _, status := x.connect(t, host+":"+port); status != 400 {
			t.Errorf("CONNECT %s: %d", host, status)
		}
	}
	p.counted("k", 0)

	// With loopback opened, our own listeners stay closed.
	open := leave(t, exitRules{rule: policy.EgressRule{Allow: []string{"*"}, Ports: []uint16{portOf(x.addr), portOf(p.URL[7:])}}, cidrs: []string{"0.0.0.0/0", "::/0"}}, nil, nil, nil)
	open.proxy.OwnListener(&net.TCPAddr{IP: net.IPv4zero, Port: int(portOf(x.addr))})
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"} {
		ask(t, open.client("HTTP/1.1"), "POST", fmt.Sprintf("http://%s:%d/_fencepost/v1/leases/x", host, portOf(x.addr)), "k", "x").is(t, 403, codeForbidden, retryNever)
	}
	for _, a := range localAddresses(t) {
		ask(t, open.client("HTTP/1.1"), "GET", fmt.Sprintf("http://%s/", net.JoinHostPort(a, fmt.Sprint(portOf(x.addr)))), "k", "").is(t, 403, codeForbidden, retryNever)
	}
	ask(t, open.client("HTTP/1.1"), "POST", p.URL+"/", "k", "x").ok(t, 201)
}

func localAddresses(t *testing.T) []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.Addr().String())
		}
	}
	return out
}

func portOf(addr string) uint16 {
	d, err := policy.ParseDestination(addr, 0)
	if err != nil {
		panic(err)
	}
	return d.Port
}

func (x *exit) dialExit(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", x.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func TestOnlyAllowedPortsAreTunnelledTo(t *testing.T) {
	x := leave(t, exitRules{rule: policy.EgressRule{Allow: []string{"*"}}}, nil, nil, nil)
	for _, host := range []string{"example.com:22", "example.com:25", "127.0.0.1:6379"} {
		if _, status := x.connect(t, host); status != 403 {
			t.Errorf("%s: %d", host, status)
		}
	}
	for _, host := range []string{"example.com", "example.com:", "example.com:0", "example.com:65536", ":443", "example.com:443/x", "*:443"} {
		conn := x.dialExit(t)
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", host)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 400 {
			t.Errorf("%q: %v %v", host, resp, err)
		}
	}
}

func TestCallersAreAskedForTheirToken(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	callers, err := policy.NewCallers([]policy.Caller{{Name: "a", Token: "0123456789abcdef"}, {Name: "b", Token: "fedcba9876543210"}})
	if err != nil {
		t.Fatal(err)
	}
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, p.trusted(), func(c *Config) { c.Rules.Callers = callers }, nil)
	host := strings.TrimPrefix(p.URL, "https://")
	for _, header := range []string{"", "Proxy-Authorization: Basic eDp5\r\n", "Proxy-Authorization: Bearer x\r\n", "Proxy-Authorization: Bearer 0123456789abcdef\r\nProxy-Authorization: Bearer 0123456789abcdef\r\n", "Fencepost-Authorization: Bearer 0123456789abcdef\r\n", "Authorization: Basic YTowMTIzNDU2Nzg5YWJjZGVm\r\n"} {
		if _, status := x.connect(t, host, header); status != 407 {
			t.Errorf("%q: %d", header, status)
		}
	}
	for name, token := range map[string]string{"a": "0123456789abcdef", "b": "fedcba9876543210"} {
		c := x.client("HTTP/1.1")
		c.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: x.addr, User: url.UserPassword("x", token)})
		for range 2 {
			ask(t, c, "POST", p.URL+"/", "k", name).ok(t, 201) // the same key is another one for each
		}
	}
	if p.effects["k"] != 2 {
		t.Errorf("%d effects", p.effects["k"])
	}
	if strings.Contains(x.log.String(), "0123456789abcdef") {
		t.Error("a token is in the log")
	}
	for _, h := range p.headers {
		if h.Get("Proxy-Authorization") != "" {
			t.Error("the token went upstream")
		}
	}
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

func TestAParentProxyIsUsedWhenConfigured(t *testing.T) {
	p, _ := secureProvider(t, false, nil)
	// The parent is an egress proxy itself, that asks for a token.
	callers, err := policy.NewCallers([]policy.Caller{{Name: "a", Token: "0123456789abcdef"}})
	if err != nil {
		t.Fatal(err)
	}
	rule := reaching(p.URL)
	rule.Allow = []string{"*"}
	parent := leave(t, exitRules{rule: rule, cidrs: loopback}, nil, func(c *Config) { c.Rules.Callers = callers; c.Instance = "parent" }, nil)
	through := func(password string) *exit {
		return leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: rule, cidrs: loopback}, p.trusted(), func(c *Config) {
			c.Egress.Parent = &url.URL{Scheme: "http", Host: parent.addr, User: url.UserPassword("x", password)}
		}, nil)
	}
	x := through("0123456789abcdef")
	for range 2 {
		ask(t, x.client("HTTP/1.1"), "POST", p.URL+"/", "k", "x").ok(t, 201)
	}
	p.counted("k", 1)
	if parent.proxy.Tally().Tunnelled["127.0.0.1"] == 0 {
		t.Error("the parent was gone round")
	}
	y := through("not the token")
	g := ask(t, y.client("HTTP/1.1"), "POST", p.URL+"/", "k2", "x")
	g.is(t, 502, codeUnreachable, retrySameKey)
	if !strings.Contains(g.body, "407") || strings.Contains(g.body, "not the token") {
		t.Errorf("%s", g.body)
	}
	// An address that is special is refused here already.
	z := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: rule}, p.trusted(), func(c *Config) {
		c.Egress.Parent = &url.URL{Scheme: "http", Host: parent.addr, User: url.UserPassword("x", "0123456789abcdef")}
	}, nil)
	ask(t, z.client("HTTP/1.1"), "POST", p.URL+"/", "k3", "x").is(t, 403, codeForbidden, retryNever)
}

// TestALoopIsNoticed: two proxies that are each other's parent.
func TestALoopIsNoticed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rule := policy.EgressRule{Allow: []string{"*"}}
	var x *exit
	relay := func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				far, err := net.Dial("tcp", x.addr)
				if err != nil {
					return
				}
				defer far.Close()
				go io.Copy(far, c)
				io.Copy(c, far)
			}()
		}
	}
	x = leave(t, exitRules{rule: rule}, nil, func(c *Config) { c.Egress.Parent = &url.URL{Scheme: "http", Host: l.Addr().String()} }, nil)
	go relay()
	defer l.Close()
	if _, status := x.connect(t, "example.com:443"); status != 502 {
		t.Errorf("%d", status)
	}
	if n := strings.Count(x.log.String(), "egress refused"); n != 1 {
		t.Errorf("it went round: %d\n%s", n, x.log)
	}
}

// TestNoProxyOfTheEnvironmentIsUsed: only one that is configured.
func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	p, _ := secureProvider(t, false, nil)
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, p.trusted(), nil, nil)
	ask(t, x.client("HTTP/1.1"), "POST", p.URL+"/", "k", "x").ok(t, 201)
	ask(t, x.client("HTTP/1.1"), "GET", p.URL+"/", "", "").ok(t, 201)
}

func TestTheEgressListenerServesTheAPIAndNothingElse(t *testing.T) {
	x := leave(t, exitRules{rule: policy.EgressRule{}}, nil, nil, nil)
	for path, want := range map[string]code{"/": codeNoRoute, "/v1/charges": codeNoRoute, lookupPath("k"): codeNoOperation} {
		resp, err := http.Get("http://" + x.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		var b problemBody
		json.NewDecoder(resp.Body).Decode(&b)
		if resp.Body.Close(); resp.StatusCode != 404 || b.Code != want {
			t.Errorf("%s: %d %s", path, resp.StatusCode, b.Code)
		}
	}
}

// TestAnOddPathPassesWhenItChangesNothing: the proxy must not break what browsers
// and tools send; but no spelling leads round a rule.
func TestAnOddPathPassesWhenItChangesNothing(t *testing.T) {
	var seen string
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) { seen = r.RequestURI })
	x := leave(t, exitRules{routes: []policy.Route{{Name: "api", Host: "127.0.0.1", Path: "/v1/", Enforce: true}}, rule: reaching(p.URL), cidrs: loopback}, nil, nil, nil)
	send := func(method, path string) int {
		conn := x.dialExit(t)
		fmt.Fprintf(conn, "%s %s%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", method, p.URL, path)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	for _, path := range []string{"/a/../b", "/a/./b?q=a|b", "/x%2e%2e/y"} {
		if status := send("GET", path); status != 200 || seen != path {
			t.Errorf("GET %s: %d, the upstream saw %s", path, status, seen)
		}
	}
	for _, path := range []string{"/a/../v1/charges", "/v1%2Fcharges", "//v1/charges", "/a/%2e%2e/v1/charges"} {
		if status := send("POST", path); status != 400 && status != 404 {
			t.Errorf("POST %s: %d", path, status)
		}
	}
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

package proxy

import (
	"bufio"
	"encoding/json"
	"fencepost/policy"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

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
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(p.URL, "https://"))
	if n := x.proxy.Tally(); n.Sent != 2 || n.Replayed != 4 || n.Ungoverned["POST 127.0.0.1:"+port] != 2 || len(n.Unknown) != 0 || n.Refused["idempotency_conflict"] != 2 {
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
	if n := x.proxy.Tally(); n.RefusedHosts["other.example (not in egress.allow)"] != 2 || n.RefusedHosts[strings.TrimPrefix(p.URL, "http://")+" (not in egress.allow)"] != 1 {
		t.Errorf("%+v", n)
	}
}

// TestToolsThatShowNoProblemDocumentShowTheReason: git shows plain text only, npm a
// field of its own; nobody else gets either.
func TestToolsThatShowNoProblemDocumentShowTheReason(t *testing.T) {
	x := leave(t, exitRules{rule: reaching()}, nil, nil, nil)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, to := range []string{"https://other.example/", "http://other.example/"} {
			if protocol == "HTTP/2.0" && strings.HasPrefix(to, "http:") {
				continue
			}
			for agent, want := range map[string]struct{ media, notice string }{
				"git/2.39.5":                   {"text/plain; charset=utf-8", ""},
				"npm/11.19.1 node/v24.22.3 x":  {"application/problem+json", "not one that may be reached"},
				"github/1":                     {"application/problem+json", ""},
				"Mozilla/5.0 git/2.39.5 npm/1": {"application/problem+json", ""},
				"git":                          {"text/plain; charset=utf-8", ""},
			} {
				req, err := http.NewRequest("GET", to, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("User-Agent", agent)
				resp, err := x.client(protocol).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				notice := resp.Header.Get("Npm-Notice")
				if resp.StatusCode != 403 || resp.Header.Get("Content-Type") != want.media || (notice != "") != (want.notice != "") || !strings.Contains(notice, want.notice) {
					t.Errorf("%s to %s: %d %v", agent, to, resp.StatusCode, resp.Header)
				}
				if !strings.Contains(string(body), "is not one that may be reached") || !strings.HasPrefix(resp.Header.Get("Proxy-Status"), "fencepost;") {
					t.Errorf("%s to %s: %v %s", agent, to, resp.Header, body)
				}
			}
		}
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
	ask(t, y.client("HTTP/1.1"), "POST", p.URL+"/", "k", "x").is(t, 403, codeForbidden, retryNever)
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

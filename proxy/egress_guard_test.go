package proxy

import (
	"bufio"
	"fencepost/policy"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// through sends a request through a tunnel without TLS. What it returns is the
// answer, of the CONNECT where no tunnel came of it.
func (x *exit) through(t *testing.T, host string) (status int, body string) {
	t.Helper()
	conn, status := x.connect(t, host)
	if status != 200 {
		return status, ""
	}
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("in a tunnel to %s: %v", host, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
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
		// The reason is told inside the tunnel: clients do not show one before it.
		status, body := x.through(t, host+":"+port)
		if status != 403 && status != 502 {
			t.Errorf("CONNECT %s: %d", host, status)
		}
		if told := strings.Contains(body, "it leads to "); status == 403 && !told {
			t.Errorf("CONNECT %s: the reason is not told: %s", host, body)
		}
		if !strings.Contains(host, "localhost") && host != "[::]" && status != 403 {
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

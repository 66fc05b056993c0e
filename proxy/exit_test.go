package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fencepost/policy"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
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
	return doBy(c, req)
}

// trusted is what vouches for a provider over TLS.
func (p *provider) trusted() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(p.Certificate())
	return roots
}

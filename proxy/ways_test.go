package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// secureProvider is a provider over TLS, which may ask for a client certificate
// and may speak HTTP/2.
func secureProvider(t *testing.T, http2 bool, clients *x509.CertPool) (*provider, string) {
	t.Helper()
	p := &provider{t: t, attempts: map[string]int{}, effects: map[string]int{}, bodies: map[string]string{}, headers: map[string]http.Header{}}
	p.handle = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("X-Host", r.Host)
		if r.TLS != nil {
			w.Header().Set("X-Server-Name", r.TLS.ServerName)
		}
		w.WriteHeader(201)
	}
	p.Server = httptest.NewUnstartedServer(p)
	p.EnableHTTP2 = http2
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	if clients != nil {
		p.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	}
	p.StartTLS()
	t.Cleanup(p.Close)
	return p, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
}

// selfSigned makes a client certificate.
func selfSigned(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "client"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(cert))
	return cert, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder})), pool
}

func TestARouteSaysHowItsUpstreamIsReached(t *testing.T) {
	cert, key, clients := selfSigned(t)
	strange, strangeKey, _ := selfSigned(t)
	for name, c := range map[string]struct {
		http2   bool
		clients *x509.CertPool
		rule    policy.ConnectRule
		roots   bool
		proto   string // "" is no connection
	}{
		"unknown authority":            {proto: ""},
		"its own authority":            {roots: true, proto: "HTTP/1.1"},
		"HTTP/2 is not asked for":      {roots: true, http2: true, proto: "HTTP/1.1"},
		"HTTP/2":                       {roots: true, http2: true, rule: policy.ConnectRule{HTTP: policy.HTTP2}, proto: "HTTP/2.0"},
		"HTTP/2 where there is none":   {roots: true, rule: policy.ConnectRule{HTTP: policy.HTTP2}, proto: "HTTP/1.1"},
		"a client certificate":         {roots: true, clients: clients, rule: policy.ConnectRule{Certificate: cert, Key: key}, proto: "HTTP/1.1"},
		"a client certificate, HTTP/2": {roots: true, http2: true, clients: clients, rule: policy.ConnectRule{HTTP: policy.HTTP2, Certificate: cert, Key: key}, proto: "HTTP/2.0"},
		"another server name":          {roots: true, rule: policy.ConnectRule{ServerName: "example.com"}, proto: "HTTP/1.1"},
		"a server name it has not":     {roots: true, rule: policy.ConnectRule{ServerName: "example.org"}, proto: ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, authority := secureProvider(t, c.http2, c.clients)
			if c.roots {
				c.rule.Roots = authority
			}
			r := start(t, p.URL, func(r *policy.Route) { r.Connect = c.rule }, nil)
			g := r.post("k", "x")
			plain := r.call("GET", "/v1/charges", "")
			if c.proto == "" {
				g.is(t, 502, codeUnreachable, retrySameKey)
				plain.is(t, 502, codeUnreachable, retrySameKey)
				p.counted("k", 0)
				return
			}
			for _, g := range []got{g, plain} {
				if g.ok(t, 201); g.header.Get("X-Proto") != c.proto || g.header.Get("X-Server-Name") != c.rule.ServerName && c.rule.ServerName != "" {
					t.Errorf("the upstream saw %s for %s, want %s", g.header.Get("X-Proto"), g.header.Get("X-Server-Name"), c.proto)
				}
			}
			p.counted("k", 1)
		})
	}
	// Without, or with a strange one, the upstream does not take part. With TLS 1.3
	// it says so after the handshake: nothing is known for sure then.
	for _, rule := range []policy.ConnectRule{{}, {Certificate: strange, Key: strangeKey}} {
		p, authority := secureProvider(t, false, clients)
		rule.Roots = authority
		r := start(t, p.URL, func(r *policy.Route) { r.Connect = rule }, nil)
		if g := r.post("k", "x"); g.status != 502 {
			t.Errorf("%d %s", g.status, g.body)
		}
		p.counted("k", 0)
	}
}

func TestHTTP2WithoutTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Proto", r.Proto) }))
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	s.Config.Protocols = &both
	s.Start()
	defer s.Close()
	r := start(t, s.URL, func(r *policy.Route) { r.Connect.HTTP = policy.H2C }, nil)
	for _, g := range []got{r.post("k", "x"), r.call("GET", "/", "")} {
		if g.ok(t, 200); g.header.Get("X-Proto") != "HTTP/2.0" {
			t.Errorf("%v", g.header)
		}
	}
}

func TestTheWayOfARequest(t *testing.T) {
	var seen http.Header
	var host, path string
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		seen, host, path = r.Header.Clone(), r.Host, r.URL.Path
	})
	r := start(t, p.URL, func(r *policy.Route) {
		r.Path, r.StripPath, r.HostField = "/stripe/", "/stripe", "api.example"
		r.Fields = policy.FieldRule{Set: map[string]string{"authorization": "Bearer SECRET-OF-THE-ROUTE", "X-Real-Ip": "1"}, Remove: []string{"x-internal"}}
	}, nil)
	for _, method := range []string{"POST", "GET"} {
		r.call(method, "/stripe/v1/charges", "", "Idempotency-Key", "k", "Authorization", "Bearer of-the-agent", "X-Internal", "1", "X-Kept", "1").ok(t, 200)
		if path != "/v1/charges" || host != "api.example" || seen.Get("Authorization") != "Bearer SECRET-OF-THE-ROUTE" || seen.Get("X-Internal") != "" || seen.Get("X-Kept") != "1" || seen.Get("X-Real-Ip") != "1" {
			t.Errorf("%s: %s %s %v", method, host, path, seen)
		}
	}
	d := r.lookup("k")
	if d.Target.Path != "/v1/charges" || d.Target.Host != "api.example" {
		t.Errorf("%+v", d.Target)
	}
	rep, err := r.store.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil || strings.Contains(string(keystore.Encode(&rep.Record)), "SECRET-OF-THE-ROUTE") || strings.Contains(r.log.String(), "SECRET-OF-THE-ROUTE") {
		t.Errorf("the credential is in the record or the log: %v", err)
	}
}

// TestTheHostThatIsPassedOnIsBound: it is a part of the target, so another one is
// another request.
func TestTheHostThatIsPassedOnIsBound(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.Host)) })
	r := start(t, p.URL, func(r *policy.Route) { r.HostField = policy.HostOfClient }, nil)
	post := func(host string) got {
		req, _ := http.NewRequest("POST", r.front.URL+"/", http.NoBody)
		req.Host = host
		req.Header.Set("Idempotency-Key", "k")
		return do(req)
	}
	post("one.example").ok(t, 200, "one.example")
	post("ONE.example").ok(t, 200, "one.example")
	post("two.example").is(t, 422, codeConflict, retryNewKey)
	p.counted("k", 1)
}

// TestAReloadKeepsConnections: of the ways that did not change, and takes new
// certificates for those that did.
func TestAReloadKeepsConnections(t *testing.T) {
	p, authority := secureProvider(t, false, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.Connect.Roots = authority }, nil)
	r.post("a", "x").ok(t, 201)
	u, _ := url.Parse(p.URL)
	route := policy.Route{Name: "all", Upstream: u, Enforce: true, Connect: policy.ConnectRule{Roots: authority}}
	before := r.proxy.rules.Load()
	if err := r.proxy.Reload(Rules{Routes: table(t, route)}); err != nil {
		t.Fatal(err)
	}
	after := r.proxy.rules.Load()
	if before.ways[before.Routes.Routes()[0]] != after.ways[after.Routes.Routes()[0]] {
		t.Error("the reload dropped the connections of a route that did not change")
	}
	route.Connect.Roots = "nonsense"
	if err := r.proxy.Reload(Rules{Routes: table(t, route)}); err == nil || !strings.Contains(err.Error(), `route "all": upstream_tls.ca`) {
		t.Errorf("rules that cannot be used: %v", err)
	}
	r.post("b", "x").ok(t, 201) // the old ones are in force
}

// TestALookupGoesTheWayOfItsRoute: a provider that wants a certificate wants it for
// lookups too.
func TestALookupGoesTheWayOfItsRoute(t *testing.T) {
	cert, key, clients := selfSigned(t)
	p, authority := secureProvider(t, false, clients)
	p.handle = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			panic(http.ErrAbortHandler)
		}
		w.Write([]byte(`{"data":[{}]}`))
	}
	r := start(t, p.URL, func(r *policy.Route) {
		r.Connect = policy.ConnectRule{Roots: authority, Certificate: cert, Key: key}
		tmpl, err := policy.CompileTemplate(p.URL+"/charges?ref={key}", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Reconcile = &policy.Reconciler{Method: "GET", URL: tmpl, Confirmed: expr(t, policy.CompileLookup, "size(lookup.json.data) == 1"), Status: 200, Timeout: 5 * time.Second, Every: time.Minute, MaxEvery: time.Hour}
	}, nil)
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	r.post("k", "x")
	if d := r.lookup("k"); d.State != keystore.Completed {
		t.Errorf("%v %+v", d.State, d.Evidence)
	}
}

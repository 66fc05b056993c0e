package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
	"fencepost/policy"
	"fencepost/proxy/internal/front"
)

// provider is a fake third party that counts attempts and effects by key, on
// its own, as the judge of every test.
type provider struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	attempts map[string]int
	effects  map[string]int
	bodies   map[string]string
	headers  map[string]http.Header
	// handle answers; the effect has been counted. Nil answers 201 with JSON.
	handle http.HandlerFunc
}

func newProvider(t *testing.T, handle http.HandlerFunc) *provider {
	p := &provider{t: t, handle: handle, attempts: map[string]int{}, effects: map[string]int{}, bodies: map[string]string{}, headers: map[string]http.Header{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	body, err := io.ReadAll(r.Body)
	p.mu.Lock()
	p.attempts[key]++
	if err == nil {
		p.effects[key]++
		p.bodies[key] = string(body)
		p.headers[key] = r.Header.Clone()
	}
	n := p.effects[key]
	h := p.handle
	p.mu.Unlock()
	if h != nil {
		h(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"key":%q,"effect":%d}`, key, n)
}

// counted fails the test unless the provider saw exactly so many effects.
func (p *provider) counted(key string, effects int) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.effects[key] != effects || p.attempts[key] != effects {
		p.t.Errorf("key %q: %d attempts and %d effects at the provider, want %d", key, p.attempts[key], p.effects[key], effects)
	}
}

// await returns when the provider has seen a request with the key.
func (p *provider) await(key string) {
	p.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := p.effects[key]
		p.mu.Unlock()
		if n > 0 {
			return
		}
	}
	p.t.Fatalf("no request with key %q reached the provider", key)
}

// rig is a proxy between a test's client and a provider.
type rig struct {
	t     *testing.T
	proxy *Proxy
	front *httptest.Server
	store keystore.Store
	log   *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func table(t testing.TB, routes ...policy.Route) *policy.Table {
	t.Helper()
	tab, err := policy.NewTable(routes)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// quiet is a pause that no test lives to see the end of.
const quiet = 10_000 * time.Hour

// start builds a proxy in front of upstream. Both adjust functions may be nil.
func start(t *testing.T, upstream string, adjustRoute func(*policy.Route), adjust func(*Config)) *rig {
	t.Helper()
	route := policy.Route{Name: "all", Upstream: mustURL(t, upstream), Enforce: true, Timeout: 10 * time.Second}
	if adjustRoute != nil {
		adjustRoute(&route)
	}
	r := &rig{t: t, log: &syncBuffer{}}
	cfg := Config{
		Rules: Rules{Routes: table(t, route)}, Instance: "test-1",
		// Periodic work runs when a test asks for it. Its first run comes after a
		// random part of this.
		SweepEvery: quiet, ReconcileEvery: quiet,
		Logger: slog.New(slog.NewJSONHandler(r.log, nil)),
	}
	if adjust != nil {
		adjust(&cfg)
	}
	if cfg.Ledger == nil {
		cfg.Ledger = storetest.NewTickingFake()
	}
	r.store = cfg.Ledger
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.proxy = p
	r.front = serveFront(p)
	t.Cleanup(func() {
		r.front.Close()
		p.kill(errShutdown)
		p.running.Wait()
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// serveFront serves h as the program does.
func serveFront(h http.Handler) *httptest.Server {
	const header = 64 << 10
	s := httptest.NewUnstartedServer(nil)
	server, err := NewServer(h, ServerOptions{HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: header, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err) // unreachable: there is no certificate
	}
	s.Config = server.http
	s.Listener = front.Listener(s.Listener, header+headSlop)
	s.Start()
	return s
}

// got is an answer, read whole.
type got struct {
	status int
	header http.Header
	body   string
	err    error
	prob   problemBody
}

// call sends one request. Pairs of header name and value follow the body.
func (r *rig) call(method, path, body string, header ...string) got {
	r.t.Helper()
	req, err := http.NewRequest(method, r.front.URL+path, struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		r.t.Fatal(err)
	}
	req.ContentLength = int64(len(body))
	if body == "" {
		req.Body = http.NoBody
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return do(req)
}

// client never re-sends, never follows and keeps no connections, so that what a
// test sees is what the proxy did.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func do(req *http.Request) got { return doBy(client, req) }

// doBy sends req by a client and reads the answer whole.
func doBy(c *http.Client, req *http.Request) got {
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

func (r *rig) post(key, body string, header ...string) got {
	r.t.Helper()
	return r.call("POST", "/v1/charges", body, append([]string{"Idempotency-Key", key}, header...)...)
}

// is fails the test unless the answer is a problem of this status and code.
func (g got) is(t *testing.T, status int, c code, what retry) {
	t.Helper()
	if g.err != nil || g.status != status || g.prob.Code != c || g.prob.Retry != what {
		t.Fatalf("got %d %s retry=%s (%v) %s, want %d %s retry=%s", g.status, g.prob.Code, g.prob.Retry, g.err, g.body, status, c, what)
	}
	if g.prob.Status != status || g.prob.Type != "urn:fencepost:problem:"+string(c) || g.prob.Title == "" || g.prob.Detail == "" {
		t.Errorf("incomplete problem: %s", g.body)
	}
	if g.prob.Error.Code != c || g.prob.Error.Message != g.prob.Detail {
		t.Errorf("an SDK that looks for an error member takes this for success: %s", g.body)
	}
	if !strings.HasPrefix(g.header.Get("Proxy-Status"), "fencepost; error=") {
		t.Errorf("Proxy-Status %q does not say that this is our own answer", g.header.Get("Proxy-Status"))
	}
}

// ok fails the test unless the answer has this status and, when given, body.
func (g got) ok(t *testing.T, status int, body ...string) {
	t.Helper()
	if g.err != nil || g.status != status || (len(body) > 0 && g.body != body[0]) {
		t.Fatalf("got %d %q (%v), want %d %q", g.status, g.body, g.err, status, body)
	}
}

// lookup reads the state document of a key.
func (r *rig) lookup(key string, header ...string) document {
	r.t.Helper()
	g := r.call("GET", lookupPath(key), "", header...)
	if g.status != 200 {
		r.t.Fatalf("lookup of %q: %d %s", key, g.status, g.body)
	}
	var d document
	if err := json.Unmarshal([]byte(g.body), &d); err != nil {
		r.t.Fatalf("%v: %s", err, g.body)
	}
	return d
}

// reads fails the test unless a lookup shows this state.
func (r *rig) reads(key string, want keystore.State) {
	r.t.Helper()
	if d := r.lookup(key); d.State != want {
		r.t.Errorf("key %q reads %v, want %v", key, d.State, want)
	}
}

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

func TestAKeyIsRequiredAndOne(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	r.call("POST", "/v1", "x").is(t, 400, codeKeyRequired, retryNewKey)
	for name, h := range map[string][]string{
		"two fields":          {"Idempotency-Key", "a", "Idempotency-Key", "b"},
		"the same twice":      {"Idempotency-Key", "a", "Idempotency-Key", "a"},
		"a list":              {"Idempotency-Key", "a, b"},
		"empty":               {"Idempotency-Key", ""},
		"a space":             {"Idempotency-Key", "a b"},
		"not ASCII":           {"Idempotency-Key", "é"},
		"256 characters":      {"Idempotency-Key", strings.Repeat("x", 256)},
		"an unclosed quote":   {"Idempotency-Key", `"a`},
		"underscore alias":    {"Idempotency-Key", "a", "Idempotency_Key", "b"},
		"named in Connection": {"Idempotency-Key", "a", "Connection", "keep-alive, idempotency-key"},
	} {
		g := r.call("POST", "/v1", "x", h...)
		if g.status != 400 || g.prob.Code != codeKeyInvalid || g.prob.Retry != retryNewKey {
			t.Errorf("%s: %d %s", name, g.status, g.body)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.attempts) != 0 {
		t.Errorf("something was sent: %v", p.attempts)
	}
}

func TestQuotedAndBareAreOneKey(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	key := "8e03978e-40d5-43dd-bc93-6894a57f9324"
	first := r.post(`"`+key+`"`, "x")
	first.ok(t, 201)
	again := r.post(key, "x")
	again.ok(t, 201, first.body)
	if again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("a second effect")
	}
	r.reads(key, keystore.Completed)
}

func TestAKeyOfAnyFormIsEchoedSoThatItReadsBack(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	for _, sent := range []string{"plain", `"with, comma"`, `"quo\"te"`, "a/b?c#d%20", `"\"edge\""`} {
		want, err := policy.ParseKey([]string{sent})
		if err != nil {
			continue // refused; not this test's matter
		}
		g := r.post(sent, "x")
		g.ok(t, 201)
		if got, err := policy.ParseKey(g.header["Idempotency-Key"]); err != nil || got != want {
			t.Errorf("%s is echoed as %q: %q %v", sent, g.header["Idempotency-Key"], got, err)
		}
		if d := r.lookup(want); d.Key != want || d.State != keystore.Completed {
			t.Errorf("%s looks up as %q, %v", sent, d.Key, d.State)
		}
	}
}

func TestTwoCallersWithOneKeyAreTwoOperations(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		b := fmt.Sprint(time.Now().UnixNano())
		io.WriteString(w, b)
	})
	callers, err := policy.NewCallers([]policy.Caller{{Name: "alice", Token: "alice-token-0123456789"}, {Name: "bob", Token: "bob-token-0123456789ab"}})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, p.URL, nil, func(c *Config) { c.Rules.Callers = callers })
	alice, bob := []string{"Fencepost-Authorization", "Bearer alice-token-0123456789"}, []string{"Fencepost-Authorization", "Bearer bob-token-0123456789ab"}
	a := r.post("k", "x", alice...)
	a.ok(t, 200)
	b := r.post("k", "y", bob...)
	b.ok(t, 200)
	if a.body == b.body || a.header.Get("Fencepost-Operation") == b.header.Get("Fencepost-Operation") {
		t.Error("one operation for two callers")
	}
	r.post("k", "x", alice...).ok(t, 200, a.body)
	r.post("only-alice", "x", alice...).ok(t, 200)
	// What another holds cannot be told from what does not exist.
	r.call("GET", lookupPath("only-alice"), "", bob...).is(t, 404, codeNoOperation, retrySameKey)
	r.call("GET", lookupPath("only-alice")+"/response", "", bob...).is(t, 404, codeNoOperation, retrySameKey)
	if d := r.lookup("only-alice", alice...); d.Scope != "alice" {
		t.Errorf("scope %q", d.Scope)
	}
	for name, h := range map[string][]string{
		"nobody":               nil,
		"a wrong token":        {"Fencepost-Authorization", "Bearer alice-token-0123456780"},
		"another scheme":       {"Fencepost-Authorization", "Basic alice-token-0123456789"},
		"two tokens":           {"Fencepost-Authorization", "Bearer alice-token-0123456789", "Fencepost-Authorization", "Bearer bob-token-0123456789ab"},
		"the provider's field": {"Authorization", "Bearer alice-token-0123456789"},
	} {
		for _, g := range []got{r.post("k", "x", h...), r.call("GET", lookupPath("k"), "", h...), r.call("GET", "/plain", "", h...)} {
			if g.status != 401 || g.prob.Code != codeCallerUnknown || g.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: %d %s", name, g.status, g.body)
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.headers {
		for name := range h {
			if strings.HasPrefix(name, "Fencepost-") {
				t.Errorf("%s went upstream", name)
			}
		}
	}
	if strings.Contains(r.log.String(), "token-0123456789") {
		t.Error("a token is in the log")
	}
}

// TestARotatedCredentialMakesNoDuplicate: scope is the caller, never the
// provider's credential.
func TestARotatedCredentialMakesNoDuplicate(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	r.post("k", "x", "Authorization", "Bearer sk_old").ok(t, 201)
	r.post("k", "x", "Authorization", "Bearer sk_new").ok(t, 201, `{"key":"k","effect":1}`)
	p.counted("k", 1)
}

func TestOnlyWhatIsSafeToRepeatIsReplayed(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Location", "/v1/charges/1")
		h.Set("ETag", `"v1"`)
		h.Add("Link", "<a>; rel=next")
		h.Add("Link", "<b>; rel=prev")
		h.Set("X-Request-Id", "req_1")
		h.Set("Set-Cookie", "session=secret")
		h.Set("X-RateLimit-Remaining", "9")
		h.Set("RateLimit", `"default";r=9`)
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "1")
		h.Set("Fencepost-State", "forged")
		h.Set("Idempotent-Replayed", "true")
		h.Set("Content-Encoding", "gzip")
		w.WriteHeader(201)
		w.Write([]byte{0x1f, 0x8b, 0, 0xff})
	})
	r := start(t, p.URL, nil, nil)
	first, again := r.post("k", "x"), r.post("k", "x")
	if first.body != "\x1f\x8b\x00\xff" || again.body != first.body {
		t.Errorf("bytes changed: %q %q", first.body, again.body)
	}
	for _, name := range []string{"Location", "Etag", "Link", "X-Request-Id", "Content-Encoding"} {
		if fmt.Sprint(first.header[name]) != fmt.Sprint(again.header[name]) || len(again.header[name]) == 0 {
			t.Errorf("%s: %q then %q", name, first.header[name], again.header[name])
		}
	}
	for _, name := range []string{"Set-Cookie", "X-Ratelimit-Remaining", "Ratelimit", "X-Hop"} {
		if again.header[name] != nil {
			t.Errorf("%s is replayed", name)
		}
	}
	if first.header.Get("Set-Cookie") == "" || first.header["X-Hop"] != nil || first.header.Get("Fencepost-State") != "completed" || first.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("first answer: %v", first.header)
	}
	rep, err := r.store.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil || strings.Contains(fmt.Sprint(rep.Record.Outcome.Header), "secret") {
		t.Errorf("the record holds a cookie: %v %v", rep.Record.Outcome.Header, err)
	}
}

func TestTheRequestReachesTheUpstreamAsItWas(t *testing.T) {
	seen := make(chan *http.Request, 1)
	p := newProvider(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Clone(r.Context()) })
	r := start(t, p.URL+"/base", nil, nil)
	g := r.call("POST", "/v1/a%2Fb/c;d=1?x=1&y=%20;z&&q=a+b", "body",
		"Idempotency-Key", "k", "Authorization", "Bearer sk_1", "X-Custom", "1", "X-Custom", "2", "X_Under", "1",
		"Expect", "100-continue", "Connection", "X-Drop", "X-Drop", "1", "Proxy-Authorization", "Basic x", "Te", "trailers, deflate",
		"X-Forwarded-For", "1.2.3.4", "Forwarded", "for=1.2.3.4", "Accept-Encoding", "br")
	g.ok(t, 200)
	u := <-seen
	if u.RequestURI != "/base/v1/a%2Fb/c;d=1?x=1&y=%20;z&&q=a+b" {
		t.Errorf("target %q", u.RequestURI)
	}
	if u.Host != strings.TrimPrefix(p.URL, "http://") {
		t.Errorf("Host %q", u.Host)
	}
	for name, want := range map[string]string{
		"Authorization": "[Bearer sk_1]", "X-Custom": "[1 2]", "Idempotency-Key": "[k]", "Te": "[trailers]", "Accept-Encoding": "[br]",
		"X_Under": "[]", "Expect": "[]", "X-Drop": "[]", "Proxy-Authorization": "[]", "X-Forwarded-For": "[]", "Forwarded": "[]",
	} {
		if got := fmt.Sprint(u.Header[name]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if p.bodies["k"] != "body" {
		t.Errorf("body %q", p.bodies["k"])
	}
}

func TestForwardedFields(t *testing.T) {
	for _, c := range []struct {
		mode            Forwarded
		xff, host, prot string
	}{
		{ForwardedOff, "", "", ""},
		{ForwardedPass, "1.2.3.4", "", ""},
		{ForwardedSet, "127.0.0.1", "front.test", "http"},
		{ForwardedAppend, "1.2.3.4, 127.0.0.1", "front.test", "http"},
	} {
		for _, method := range []string{"GET", "POST"} {
			seen := make(chan http.Header, 1)
			p := newProvider(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
			r := start(t, p.URL, nil, func(cfg *Config) { cfg.Forwarded = c.mode })
			req, _ := http.NewRequest(method, r.front.URL+"/", nil)
			req.Host = "front.test"
			req.Header.Set("X-Forwarded-For", "1.2.3.4")
			req.Header.Set("Idempotency-Key", "k")
			do(req)
			h := <-seen
			if h.Get("X-Forwarded-For") != c.xff || h.Get("X-Forwarded-Host") != c.host || h.Get("X-Forwarded-Proto") != c.prot {
				t.Errorf("%s mode %d: %q %q %q", method, c.mode, h.Get("X-Forwarded-For"), h.Get("X-Forwarded-Host"), h.Get("X-Forwarded-Proto"))
			}
		}
	}
}

func TestTheUpstreamKeyFollowsTheRoute(t *testing.T) {
	seen := make(chan http.Header, 1)
	p := newProvider(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	r := start(t, p.URL, func(r *policy.Route) { r.UpstreamKey.Header = "PayPal-Request-Id" }, nil)
	r.post("k", "x").ok(t, 200)
	if h := <-seen; h.Get("PayPal-Request-Id") != "k" || h["Idempotency-Key"] != nil {
		t.Errorf("%v", h)
	}
	r = start(t, p.URL, func(r *policy.Route) { r.UpstreamKey.Send = policy.SendNone }, nil)
	r.post("k", "x").ok(t, 200)
	if h := <-seen; h["Idempotency-Key"] != nil {
		t.Errorf("%v", h)
	}
	r = start(t, p.URL, func(r *policy.Route) { r.Key.Header = "X-My-Key" }, nil)
	r.call("POST", "/", "x", "X-My-Key", "k2").ok(t, 200)
	if h := <-seen; h.Get("X-My-Key") != "k2" {
		t.Errorf("%v", h)
	}
}

func TestABodyOverTheLimitIsNotSent(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.Limits.Request = 1000 }, func(c *Config) { c.SpoolMemory = 100; c.SpoolDir = t.TempDir() })
	r.post("k", strings.Repeat("x", 1001)).is(t, 413, codeTooLarge, retryNever)
	req, _ := http.NewRequest("POST", r.front.URL+"/", struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1001))})
	req.Header.Set("Idempotency-Key", "k")
	do(req).is(t, 413, codeTooLarge, retryNever)
	p.counted("k", 0)
	r.call("GET", lookupPath("k"), "").is(t, 404, codeNoOperation, retrySameKey)
	// At the limit, through a file: the bytes sent are the bytes received.
	body := strings.Repeat("0123456789", 100)
	r.post("k", body).ok(t, 201)
	req, _ = http.NewRequest("POST", r.front.URL+"/v1/charges", struct{ io.Reader }{strings.NewReader(body)})
	req.Header.Set("Idempotency-Key", "k")
	if g := do(req); g.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same bytes in chunks are another request: %d %s", g.status, g.body)
	}
	p.counted("k", 1)
	if p.bodies["k"] != body {
		t.Error("the body changed on its way through a file")
	}
}

// raw sends bytes as they are and returns the status line, or the error.
func (r *rig) raw(text string, close bool) string {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.front.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, text)
	if close {
		c.(*net.TCPConn).CloseWrite()
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && line == "" {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

func TestABrokenRequestLeavesNothingBehind(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	const head = "POST /v1 HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"
	for name, text := range map[string]string{
		"client dies half-way":     head + "Content-Length: 10\r\n\r\nhalf",
		"chunked body cut":         head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
		"bad chunk size":           head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
		"both lengths and chunks":  head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"chunks and length":        head + "Transfer-Encoding: chunked\r\ncontent-length: 0\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"one length twice":         head + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
		"a signed length":          head + "Content-Length: +1\r\n\r\na",
		"a folded field":           head + "X-A: b\r\n c\r\nContent-Length: 1\r\n\r\na",
		"a folded key":             "POST /v1 HTTP/1.1\r\nHost: x\r\nIdempotency-Key:\r\n k\r\nContent-Length: 1\r\n\r\na",
		"a field before the first": "POST /v1 HTTP/1.1\r\n Host: x\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\na",
		"a bare return in a field": head + "X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\na",
		"chunks on HTTP/1.0":       "POST /v1 HTTP/1.0\r\nHost: x\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"two encodings":            head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"no end behind a chunk":    head + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
		"a space in a chunk size":  head + "Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
		"a folded trailer":         head + "Transfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n1\r\na\r\n0\r\nX-A: b\r\n c\r\n\r\n",
		"two different lengths":    head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"two hosts":                "POST /v1 HTTP/1.1\r\nHost: x\r\nHost: y\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\na",
		"space before the colon":   "POST /v1 HTTP/1.1\r\nHost: x\r\nIdempotency-Key : k\r\nContent-Length: 1\r\n\r\na",
		"identity, chunked":        head + "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
		"negative length":          head + "Content-Length: -1\r\n\r\n",
		"bare line feed in chunks": head + "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
	} {
		if line := r.raw(text, true); !strings.HasPrefix(line, "HTTP/1.1 4") && !strings.HasPrefix(line, "HTTP/1.0 4") && !strings.HasPrefix(line, "HTTP/1.1 501") && line != "EOF" {
			t.Errorf("%s: %q", name, line)
		}
	}
	p.counted("k", 0)
	r.call("GET", lookupPath("k"), "").is(t, 404, codeNoOperation, retrySameKey)
	r.post("k", "x").ok(t, 201)
}

// TestNothingFollowsADoubtfulRequest: what would come next on the connection is
// part of the one before to some servers, and a request of its own to others.
func TestNothingFollowsADoubtfulRequest(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	const hidden = "POST /v1 HTTP/1.1\r\nHost: x\r\nIdempotency-Key: hidden\r\nContent-Length: 1\r\n\r\na"
	c := r.dial("POST /v1 HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden)
	c.SetDeadline(time.Now().Add(10 * time.Second))
	answers, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answers), "HTTP/1.1 400 ") || strings.Count(string(answers), "HTTP/1.1") != 1 ||
		!strings.Contains(string(answers), "both Transfer-Encoding and Content-Length") || !strings.Contains(string(answers), "Connection: close") {
		t.Errorf("%v: %s", err, answers)
	}
	p.counted("k", 0)
	p.counted("hidden", 0)
}

// TestPipelinedRequestsAreServedInOrder: one connection, requests of every
// framing, all written before the first answer is read.
func TestPipelinedRequestsAreServedInOrder(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	var all strings.Builder
	const n = 60
	for i := range n {
		fmt.Fprintf(&all, "POST /v1/%d HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k%d\r\n", i, i)
		switch i % 4 {
		case 0:
			all.WriteString("Content-Length: 3\r\n\r\nabc\r\n") // an empty line too many, as old clients send
		case 1:
			all.WriteString("Transfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n2\r\nbc\r\n0\r\nX-T: v\r\n\r\n")
		case 2:
			all.WriteString("\r\n")
		case 3:
			fmt.Fprintf(&all, "Content-Length: 8100\r\n\r\n%s", strings.Repeat("\r\n\r\nPOST ", 900))
		}
	}
	c := r.dial("")
	c.SetDeadline(time.Now().Add(30 * time.Second))
	go io.WriteString(c, all.String())
	answers := bufio.NewReader(c)
	for i := range n {
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		body, err := io.ReadAll(resp.Body)
		if want := fmt.Sprintf(`{"key":"k%d","effect":1}`, i); err != nil || resp.StatusCode != 201 || string(body) != want {
			t.Fatalf("%d: %d %q %v, want %s", i, resp.StatusCode, body, err, want)
		}
	}
	for i := range n {
		p.counted(fmt.Sprintf("k%d", i), 1)
	}
}

func TestConnectAndOddTargetsAreRefused(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	for _, line := range []string{
		"CONNECT 127.0.0.1:80 HTTP/1.1", "CONNECT /x HTTP/1.1",
		"POST x:v1/charges HTTP/1.1", "GET x:v1/charges HTTP/1.1", "POST /a/../b HTTP/1.1", "POST /a/%2e%2e/b HTTP/1.1", "POST /a\\b HTTP/1.1", "GET /a/./b HTTP/1.1", "GET /a%00b HTTP/1.1",
	} {
		got := r.raw(line+"\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n", false)
		if !strings.HasPrefix(got, "HTTP/1.1 40") {
			t.Errorf("%s: %q", line, got)
		}
	}
	p.counted("k", 0)
	p.counted("", 0)
}

func TestALeaseThatWasNeverGivenSendsNothing(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	r.post("k", "x", "Fencepost-Lease", `"run-1";token=7`).is(t, 412, codeLeaseStale, retryNever)
	r.post("k", "x", "Fencepost-Lease", `nonsense`).is(t, 400, codeLeaseInvalid, retrySameKey)
	p.counted("k", 0)
}

func TestAHostOrPathWithoutARouteIsNotFound(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.Path = "/v1/" }, nil)
	r.call("POST", "/v2/x", "x", "Idempotency-Key", "k").is(t, 404, codeNoRoute, retryNever)
	r.call("GET", "/_fencepost/v1/nothing", "").is(t, 404, codeNoRoute, retryNever)
	r.call("POST", lookupPath("k"), "").is(t, 405, codeMethodNotAllowed, retryNever)
	r.call("DELETE", lookupPath("k"), "").is(t, 405, codeMethodNotAllowed, retryNever)
	p.counted("k", 0)
}

func TestALookupNeverCreates(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	g := r.call("GET", lookupPath("k"), "")
	g.is(t, 404, codeNoOperation, retrySameKey)
	r.call("GET", lookupPath("k")+"?wait=10s", "").is(t, 404, codeNoOperation, retrySameKey)
	r.call("GET", lookupPath("k")+"/response", "").is(t, 404, codeNoOperation, retrySameKey)
	r.call("GET", lookupPath("k")+"?wait=soon", "").is(t, 400, codeMalformed, retryNever)
	r.call("GET", lookupPath(strings.Repeat("x", 256)), "").is(t, 400, codeKeyInvalid, retryNewKey)
	r.call("HEAD", lookupPath("k"), "")
	p.counted("k", 0)
	r.post("k", "x").ok(t, 201)
	if d := r.lookup("k"); d.Attempt != 1 || d.Version != 3 || len(d.History) != 3 || d.Route != "all" || d.Method != "POST" || d.Target.Path != "/v1/charges" {
		t.Errorf("%+v", d)
	}
}

func TestSecretsStayOutOfLogAndRecord(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	r.call("POST", "/v1?api_key=QUERYSECRET", `{"card":"BODYSECRET"}`, "Idempotency-Key", "k", "Authorization", "Bearer HEADERSECRET", "Cookie", "COOKIESECRET").ok(t, 201)
	rep, err := r.store.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	record := string(keystore.Encode(&rep.Record))
	for _, s := range []string{"BODYSECRET", "HEADERSECRET", "COOKIESECRET"} {
		if strings.Contains(record, s) {
			t.Errorf("%s is in the record", s)
		}
	}
	for _, s := range []string{"QUERYSECRET", "BODYSECRET", "HEADERSECRET", "COOKIESECRET"} {
		if strings.Contains(r.log.String(), s) {
			t.Errorf("%s is in the log", s)
		}
	}
}

// TestAnOverriddenMethodIsTheMethod: to many servers GET with X-HTTP-Method-Override:
// DELETE is DELETE.
func TestAnOverriddenMethodIsTheMethod(t *testing.T) {
	var mu sync.Mutex
	deletes := 0
	p := newProvider(t, nil)
	p.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-HTTP-Method-Override") == "DELETE" {
			mu.Lock()
			deletes++
			mu.Unlock()
			panic(http.ErrAbortHandler)
		}
	})
	r := start(t, p.URL, nil, nil)
	r.call("GET", "/warm", "").ok(t, 200)
	r.call("GET", "/charges/1", "", "X-HTTP-Method-Override", "DELETE").is(t, 400, codeKeyRequired, retryNewKey)
	for range 2 {
		if g := r.call("GET", "/charges/1", "", "X-HTTP-Method-Override", "DELETE", "Idempotency-Key", "k"); g.prob.Code != codeUnknown {
			t.Errorf("%+v", g)
		}
	}
	mu.Lock()
	if deletes != 1 {
		t.Errorf("%d effects", deletes)
	}
	mu.Unlock()
	r.post("post", "x").ok(t, 200)
	r.post("post", "x", "X-HTTP-Method-Override", "DELETE").is(t, 422, codeConflict, retryNewKey)
	r.call("GET", "/search", "", "X-HTTP-Method-Override", "GET").ok(t, 200)
}

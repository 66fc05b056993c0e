package proxy

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
	"fencepost/policy"
)

// compares is a route that compares bodies in a form.
func compares(kind policy.BodyKind, ignore ...string) func(*policy.Route) {
	return func(r *policy.Route) { r.Fingerprint.Body, r.Fingerprint.Ignore = kind, ignore }
}

// again fails the test unless a second request is answered by the recorded first.
func (g got) again(t *testing.T, first got) {
	t.Helper()
	if g.err != nil || g.status != first.status || g.body != first.body || g.header.Get("Idempotent-Replayed") != "true" {
		t.Fatalf("got %d %s (%v), want a replay of %d %s", g.status, g.body, g.err, first.status, first.body)
	}
}

// chunks makes a body of unknown length.
func chunks(r *rig, key, body string, header ...string) got {
	r.t.Helper()
	req, err := http.NewRequest("POST", r.front.URL+"/v1/charges", struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return do(req)
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTheSameJSONInAnotherOrderIsTheSame: case 9.
func TestTheSameJSONInAnotherOrderIsTheSame(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, compares(policy.BodyJSON), nil)
	first := r.post("k", `{"amount":1999,"to":{"iban":"x","name":"y"}}`)
	first.ok(t, 201)
	r.post("k", "{\"to\": {\"name\": \"y\", \"iban\": \"x\"},\n\"amount\": 1999.0}").again(t, first)
	for _, other := range []string{`{"amount":19990,"to":{"iban":"x","name":"y"}}`, `{"amount":1999,"to":{"iban":"y","name":"x"}}`, `{"amount":1999,"to":{"iban":"x"}}`, `{"amount":1999,"to":{"iban":"x","name":"y"},"note":null}`, `{"amount":"1999","to":{"iban":"x","name":"y"}}`, `{"amount":1999,"to":{"iban":"x","name":"y"}`} {
		r.post("k", other).is(t, 422, codeConflict, retryNewKey)
	}
	p.counted("k", 1)
	// Large numbers do not meet, wherever the body is held.
	r = start(t, p.URL, compares(policy.BodyJSON), func(c *Config) { c.SpoolMemory = 8 })
	first = r.post("n", `{"id":9007199254740993}`)
	r.post("n", `{"id":9007199254740992}`).is(t, 422, codeConflict, retryNewKey)
	r.post("n", ` {"id":9007199254740993}`).again(t, first)
	p.counted("n", 1)
}

// TestAChunkedBodyCounts: case 11.
func TestAChunkedBodyCounts(t *testing.T) {
	for kind, ctype := range map[policy.BodyKind]string{policy.BodyRaw: "application/json", policy.BodyJSON: "application/json", policy.BodyAuto: "application/json", policy.BodyForm: "application/x-www-form-urlencoded"} {
		for _, memory := range []int{2, 1 << 20} {
			p := newProvider(t, nil)
			r := start(t, p.URL, compares(kind), func(c *Config) { c.SpoolMemory = memory })
			body, other := `{"a":1}`, `{"a":2}`
			if kind == policy.BodyForm {
				body, other = "a=1", "a=2"
			}
			first := chunks(r, "k", body, "Content-Type", ctype)
			first.ok(t, 201)
			chunks(r, "k", other, "Content-Type", ctype).is(t, 422, codeConflict, retryNewKey)
			chunks(r, "k", body, "Content-Type", ctype).again(t, first)
			r.post("k", body, "Content-Type", ctype).again(t, first) // its framing is no part of it
			p.counted("k", 1)
			if p.bodies["k"] != body {
				t.Errorf("%v: the upstream got %q", kind, p.bodies["k"])
			}
		}
	}
}

// upload is a multipart body with a boundary of its own.
func upload(t *testing.T, content string) (body, ctype string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	w.WriteField("purpose", "evidence")
	f, err := w.CreateFormFile("file", "a.bin")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(f, content)
	w.Close()
	return b.String(), w.FormDataContentType()
}

// TestTheSameFileWithAnotherBoundaryIsTheSame: case 13.
func TestTheSameFileWithAnotherBoundaryIsTheSame(t *testing.T) {
	p := newProvider(t, nil)
	for name, size := range map[string]int{"memory": 10, "file": 1 << 20, "longer-than-is-parsed": 5 << 20} {
		r := start(t, p.URL, compares(policy.BodyAuto), nil)
		content := strings.Repeat("\r\nx-", size/4)
		body, ctype := upload(t, content)
		first := r.post(name, body, "Content-Type", ctype)
		first.ok(t, 201)
		for range 2 {
			body, ctype = upload(t, content)
			r.post(name, body, "Content-Type", ctype).again(t, first)
		}
		body, ctype = upload(t, content+"y")
		r.post(name, body, "Content-Type", ctype).is(t, 422, codeConflict, retryNewKey)
	}
	r := start(t, p.URL, nil, nil)
	body, ctype := upload(t, "x")
	r.post("raw", body, "Content-Type", ctype).ok(t, 201)
	body, ctype = upload(t, "x")
	r.post("raw", body, "Content-Type", ctype).is(t, 422, codeConflict, retryNewKey)
	p.counted("raw", 1)
}

// TestAFreshTimestampIsIgnored: case 13.
func TestAFreshTimestampIsIgnored(t *testing.T) {
	for name, c := range map[string]struct {
		kind                  policy.BodyKind
		ctype                 string
		one, two, none, other string
	}{
		"json": {policy.BodyJSON, "application/json", `{"a":1,"ts":"10:00"}`, `{"ts":"10:01","a":1}`, `{"a":1}`, `{"a":2,"ts":"10:00"}`},
		"auto": {policy.BodyAuto, "application/json", `{"a":1,"ts":"10:00"}`, `{"ts":"10:01","a":1}`, `{"a":1}`, `{"a":1,"TS":"10:00"}`},
		"form": {policy.BodyForm, "application/x-www-form-urlencoded", "a=1&ts=10%3A00", "ts=10:01&a=1", "a=1", "a=1&tz=1"},
	} {
		p := newProvider(t, nil)
		r := start(t, p.URL, compares(c.kind, "/ts"), nil)
		first := r.post("k", c.one, "Content-Type", c.ctype)
		first.ok(t, 201)
		r.post("k", c.two, "Content-Type", c.ctype).again(t, first)
		r.post("k", c.none, "Content-Type", c.ctype).again(t, first)
		r.post("k", c.other, "Content-Type", c.ctype).is(t, 422, codeConflict, retryNewKey)
		p.counted("k", 1)
		if p.bodies["k"] != c.one {
			t.Errorf("%s: the upstream got %q, not what was sent", name, p.bodies["k"])
		}
	}
}

func TestACompressedBodyIsTheSameWhereItIsParsed(t *testing.T) {
	text := `{"a":1}`
	z := zipped(t, text)
	p := newProvider(t, nil)
	r := start(t, p.URL, compares(policy.BodyJSON), nil)
	first := r.post("json", text)
	r.post("json", z, "Content-Encoding", "gzip").again(t, first)
	r.post("json", z).is(t, 422, codeConflict, retryNewKey)
	r.post("json", text, "Content-Encoding", "gzip").is(t, 422, codeConflict, retryNewKey)
	// What the upstream gets is what came.
	first = r.post("zip", z, "Content-Encoding", "gzip")
	if p.bodies["zip"] != z || p.headers["zip"].Get("Content-Encoding") != "gzip" {
		t.Errorf("the upstream got %q", p.bodies["zip"])
	}
	r.post("zip", text).again(t, first)

	r = start(t, p.URL, nil, nil)
	r.post("raw", z, "Content-Encoding", "gzip").ok(t, 201)
	r.post("raw", text).is(t, 422, codeConflict, retryNewKey)
	r.post("raw", z).is(t, 422, codeConflict, retryNewKey)
	r.post("raw", z, "Content-Encoding", "br").is(t, 422, codeConflict, retryNewKey)
	r.post("raw", z, "Content-Encoding", "GZIP").ok(t, 201)
	p.counted("raw", 1)
}

// TestWhatCannotBeParsedIsComparedByItsBytes: and is sent like anything else.
func TestWhatCannotBeParsedIsComparedByItsBytes(t *testing.T) {
	for name, c := range map[string]struct {
		kind          policy.BodyKind
		body, similar string
		ctype, coding string
	}{
		"a name twice":   {policy.BodyJSON, `{"a":1,"a":2}`, `{"a":2,"a":1}`, "application/json", ""},
		"no JSON":        {policy.BodyJSON, `{'a':1}`, `{'a': 1}`, "application/json", ""},
		"no form":        {policy.BodyForm, "a=%&b=1", "b=1&a=%", "application/x-www-form-urlencoded", ""},
		"no parts":       {policy.BodyMultipart, "--x", "--x ", "multipart/form-data; boundary=x", ""},
		"no type":        {policy.BodyAuto, `{"a":1,"b":1}`, `{"b":1,"a":1}`, "", ""},
		"broken gzip":    {policy.BodyJSON, "\x1f\x8bxxxxxxxx", "\x1f\x8bxxxxxxxy", "application/json", "gzip"},
		"unknown coding": {policy.BodyJSON, `{"a":1}`, `{"a": 1}`, "application/json", "zstd"},
	} {
		p := newProvider(t, nil)
		r := start(t, p.URL, compares(c.kind), nil)
		header := []string{"Content-Type", c.ctype}
		if c.ctype == "" {
			header = nil
		}
		if c.coding != "" {
			header = append(header, "Content-Encoding", c.coding)
		}
		first := r.post("k", c.body, header...)
		if first.status != 201 {
			t.Errorf("%s: %d %s", name, first.status, first.body)
		}
		r.post("k", c.body, header...).again(t, first)
		r.post("k", c.similar, header...).is(t, 422, codeConflict, retryNewKey)
		p.counted("k", 1)
	}
}

func TestABombIsComparedByItsBytes(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, compares(policy.BodyJSON), nil)
	bomb := zipped(t, strings.Repeat(" ", 64<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r.post("k", bomb, "Content-Encoding", "gzip").ok(t, 201)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 40<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	r.post("k", bomb, "Content-Encoding", "gzip").ok(t, 201)
	p.counted("k", 1)
}

// remember puts a record into the ledger as another program would have left it.
func remember(t *testing.T, s *storetest.Fake, key, fingerprint string, state keystore.State) {
	t.Helper()
	id := keystore.ID{Scope: "default", Key: key}
	events := []keystore.Event{
		{Kind: keystore.Reserve, Attempt: "a", Silence: 30 * time.Second, Keep: time.Hour, New: &keystore.Record{ID: id, Operation: "op-" + key, Fingerprint: fingerprint, Method: "POST", Route: "all"}},
		{Kind: keystore.Mark, Attempt: "a", Silence: 30 * time.Second},
		{Kind: keystore.Complete, Attempt: "a", Keep: time.Hour, Body: []byte("old"), Outcome: &keystore.Outcome{Source: keystore.FromResponse, Status: 201, Retained: true, BodySize: 3}},
	}
	switch state {
	case keystore.Reserved:
		events = append(events[:1], keystore.Event{Kind: keystore.Release, Attempt: "a", Keep: time.Hour})
	case keystore.Dispatched:
		events = events[:2]
	case keystore.Unknown:
		events[2] = keystore.Event{Kind: keystore.Doubt, Attempt: "a"}
	}
	var cur *keystore.Record
	for _, ev := range events {
		ev.By, ev.Writer = "old", "old/"+key+ev.Kind.String()
		w, no := keystore.Next(cur, ev, 0, nil)
		if no != keystore.Allowed {
			t.Fatal(no)
		}
		write := s.Swap
		if cur == nil {
			write = s.Insert
		}
		rep, err := write(t.Context(), w)
		if err != nil || rep.Result != keystore.Written {
			t.Fatal(rep.Result, err)
		}
		cur = &rep.Record
	}
}

// fingerprint is the one that a request with this body has by a scheme.
func (r *rig) fingerprint(scheme, body string) string {
	r.t.Helper()
	route := r.proxy.rules.Load().Routes.Routes()[0]
	h := r.proxy.finger.NewBody()
	io.WriteString(h, body)
	fp, ok, err := r.proxy.finger.SumAs(scheme, route, policy.Request{Method: "POST", Target: route.Target(policy.Origin{}, "/v1/charges", "")}, policy.Body{Sum: h.Sum(nil), Len: int64(len(body)), Open: func() io.Reader { return strings.NewReader(body) }})
	if err != nil || !ok {
		r.t.Fatal(ok, err)
	}
	return fp
}

// TestARecordOfAnotherTimeIsHonoured in every state, by the scheme it was made by and
// by nothing looser.
func TestARecordOfAnotherTimeIsHonoured(t *testing.T) {
	const body, reordered, other = `{"a":1,"b":2}`, `{"b":2,"a":1}`, `{"a":1,"b":3}`
	for _, kind := range []policy.BodyKind{policy.BodyRaw, policy.BodyJSON, policy.BodyAuto} {
		for _, scheme := range []string{"raw1", "raw2", "json1"} {
			for _, key := range []string{"", "0123456789abcdef"} {
				fake := storetest.NewFake()
				p := newProvider(t, nil)
				unkeyed := start(t, p.URL, compares(kind), func(c *Config) { c.Ledger = fake })
				r := start(t, p.URL, compares(kind), func(c *Config) { c.Ledger, c.FingerprintKey = fake, []byte(key) })
				post := func(k, body string) got { return r.post(k, body, "Content-Type", "application/json") }
				for _, state := range []keystore.State{keystore.Reserved, keystore.Dispatched, keystore.Unknown, keystore.Completed} {
					k := state.String()
					remember(t, fake, k, unkeyed.fingerprint(scheme, body), state)
					post(k, other).is(t, 422, codeConflict, retryNewKey)
					texts := []string{body, reordered}
					if scheme != "json1" {
						post(k, reordered).is(t, 422, codeConflict, retryNewKey)
						texts = texts[:1]
					}
					for _, text := range texts {
						switch g := post(k, text); state {
						case keystore.Reserved:
							g.ok(t, 201)
						case keystore.Dispatched:
							g.is(t, 409, codeInFlight, retrySameKey)
							g = r.post(k, text, "Content-Type", "application/json", "Prefer", "wait=0")
							g.is(t, 409, codeInFlight, retrySameKey)
						case keystore.Unknown:
							g.is(t, 409, codeUnknown, retryAfterResolution)
						default:
							g.ok(t, 201, "old")
						}
					}
				}
				p.counted("reserved", 1)
				p.counted("completed", 0)
				if t.Failed() {
					t.Fatalf("%v, a %s record, key %q", kind, scheme, key)
				}
			}
		}
	}
}

// TestAReservationOfAnotherSchemeTakenOver: whoever lost it learns the truth, not that
// its key is another's.
func TestAReservationOfAnotherSchemeTakenOver(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	remember(t, fake, "k", r.fingerprint("raw1", "x"), keystore.Reserved)
	takenOverAtTheMark(t, fake)
	r.post("k", "x").is(t, 409, codeInFlight, retrySameKey)
	p.counted("k", 0)
}

func TestARecordThatCannotBeComparedIsAnother(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	keyed := start(t, p.URL, compares(policy.BodyJSON), func(c *Config) { c.Ledger, c.FingerprintKey = fake, []byte("0123456789abcdef") })
	r := start(t, p.URL, compares(policy.BodyJSON), func(c *Config) { c.Ledger = fake })
	for _, scheme := range []string{"raw1-hmac", "raw2-hmac", "json1-hmac"} {
		remember(t, fake, scheme, keyed.fingerprint(scheme, `{}`), keystore.Completed)
		r.post(scheme, `{}`).is(t, 422, codeConflict, retryNewKey)
		keyed.post(scheme, `{}`).ok(t, 201, "old")
	}
	for i, fp := range []string{"json2:" + strings.Repeat("0", 64), "raw1", "probe", "json1:", ":"} {
		k := fmt.Sprint("k", i)
		remember(t, fake, k, fp, keystore.Completed)
		r.post(k, `{}`).is(t, 422, codeConflict, retryNewKey)
	}
	// What the first request was parsed as, this one is not.
	remember(t, fake, "form", "form1:"+strings.Repeat("0", 64), keystore.Completed)
	r.post("form", `{}`, "Content-Type", "application/json").is(t, 422, codeConflict, retryNewKey)
	p.counted("k0", 0)
}

// TestABodyThatCannotBeReadAgainDecidesNothing: a broken disk makes no conflict, which
// would tell the caller to take a new key.
func TestABodyThatCannotBeReadAgainDecidesNothing(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, compares(policy.BodyRaw), func(c *Config) { c.Ledger = fake })
	remember(t, fake, "k", r.fingerprint("json1", `{}`), keystore.Completed)
	gone, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	id := keystore.ID{Scope: "default", Key: "k"}
	req := httptest.NewRequest("POST", "/v1/charges", nil)
	route := r.proxy.rules.Load().Routes.Routes()[0]
	x := &exchange{p: r.proxy, route: route, req: req, id: id, target: route.Target(policy.Origin{}, "/v1/charges", ""), body: &spooled{file: gone, size: 2, sum: []byte("sum")}, fingerprint: "raw2:x", line: &line{}}
	rep, err := r.proxy.ledger.get(t.Context(), id)
	if err != nil || rep.Result != keystore.Found {
		t.Fatal(rep.Result, err)
	}
	if c := x.decide(&rep); c != keystore.ClaimRefuse {
		t.Errorf("it is decided: %v", c)
	}
	_, ans := x.meet(t.Context(), rep)
	w := httptest.NewRecorder()
	ans.write(x, w)
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"retry":"same_key"`) || strings.Contains(w.Body.String(), rep.Record.Operation) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestAFormMayBeChangedWhileRetriesAreUnderWay: by the route's own configuration.
func TestAFormMayBeChangedWhileRetriesAreUnderWay(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, compares(policy.BodyRaw), nil)
	first := r.post("raw", `{"a":1,"b":2}`)
	reload := func(kind policy.BodyKind) {
		t.Helper()
		route := policy.Route{Name: "all", Upstream: mustURL(t, p.URL), Enforce: true, Timeout: 10 * time.Second}
		compares(kind)(&route)
		if err := r.proxy.Reload(Rules{Routes: table(t, route)}); err != nil {
			t.Fatal(err)
		}
	}
	reload(policy.BodyJSON)
	r.post("raw", `{"a":1,"b":2}`).again(t, first)
	r.post("raw", `{"b":2,"a":1}`).is(t, 422, codeConflict, retryNewKey)
	second := r.post("json", `{"a":1,"b":2}`)
	reload(policy.BodyAuto)
	// The retry lacks the Content-Type, or has another: its form is that of the first.
	r.post("json", `{"b":2,"a":1}`).again(t, second)
	r.post("json", `{"b":2,"a":1}`, "Content-Type", "text/plain").again(t, second)
	r.post("json", `{"b":3,"a":1}`).is(t, 422, codeConflict, retryNewKey)
	reload(policy.BodyRaw)
	r.post("json", `{"b":2,"a":1}`).again(t, second)
	r.post("raw", `{"a":1,"b":2}`).again(t, first)
	p.counted("raw", 1)
	p.counted("json", 1)
}

// TestADuplicateOfAnotherSchemeWaits: the comparison is made while it waits, too.
func TestADuplicateOfAnotherSchemeWaits(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release; w.WriteHeader(201) })
	r := start(t, p.URL, compares(policy.BodyAuto), nil)
	first, second := make(chan got), make(chan got)
	go func() { first <- r.post("k", `{"a":1,"b":2}`, "Content-Type", "application/json") }()
	p.await("k")
	go func() { second <- r.post("k", `{"b":2,"a":1}`, "Prefer", "wait=30") }()
	for r.proxy.waiters.len() == 0 {
		runtime.Gosched()
	}
	r.post("k", `{"b":3,"a":1}`, "Prefer", "wait=30").is(t, 422, codeConflict, retryNewKey)
	close(release)
	g := <-first
	g.ok(t, 201)
	(<-second).again(t, g)
	p.counted("k", 1)
}

func TestTrailersCount(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	call := func(front *httptest.Server, key, body string, length int64, trailer http.Header) got {
		req, err := http.NewRequest("POST", front.URL+"/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", key)
		req.ContentLength, req.Trailer = length, trailer
		resp, err := front.Client().Do(req)
		if err != nil {
			return got{err: err}
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return got{status: resp.StatusCode, header: resp.Header, body: string(b), err: err}
	}
	h2 := httptest.NewUnstartedServer(r.proxy)
	h2.EnableHTTP2 = true
	h2.StartTLS()
	t.Cleanup(h2.Close)
	for name, c := range map[string]struct {
		front  *httptest.Server
		length int64
		// What no upstream would get as a trailer. HTTP/2 has no credentials there.
		secret string
	}{"chunked": {r.front, -1, "Authorization"}, "http2": {h2, -1, "Fencepost-Authorization"}, "length": {h2, 4, "Fencepost-Authorization"}} {
		first := call(c.front, name, "body", c.length, http.Header{"X-Sum": {"1"}, c.secret: {"Bearer 1"}})
		first.ok(t, 201)
		call(c.front, name, "body", c.length, http.Header{"X-Sum": {"1"}, c.secret: {"Bearer 2"}}).again(t, first)
		for what, trailer := range map[string]http.Header{"another value": {"X-Sum": {"2"}}, "another name": {"X-Som": {"1"}}, "none": nil} {
			if g := call(c.front, name, "body", c.length, trailer); g.status != 422 {
				t.Errorf("%s, %s: %d %s %v", name, what, g.status, g.body, g.err)
			}
		}
		p.counted(name, 1)
	}
}

package proxy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
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
)

func (r *rig) resolve(key, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest("POST", "http://127.0.0.1/v1/operations/default/"+key+"/resolve", strings.NewReader(body))
	w := httptest.NewRecorder()
	r.proxy.Admin().ServeHTTP(w, req)
	return w
}

// doubtful is a provider that acts and answers 500, and a proxy in front of it.
func doubtful(t *testing.T) (*provider, *rig) {
	var once sync.Map
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if _, again := once.LoadOrStore(r.Header.Get("Idempotency-Key"), true); !again {
			w.WriteHeader(500)
			fmt.Fprint(w, "upstream trouble")
			return
		}
		fmt.Fprint(w, "second send")
	})
	r := start(t, p.URL, nil, nil)
	r.post("k", "x").ok(t, 500)
	return p, r
}

func TestAnOperatorSettlesADoubt(t *testing.T) {
	t.Run("as completed, with a response", func(t *testing.T) {
		p, r := doubtful(t)
		body := base64.StdEncoding.EncodeToString([]byte(`{"id":"ch_1"}`))
		w := r.resolve("k", `{"as":"completed","reason":"seen in the provider's dashboard","actor":"dana","status":201,"header":{"Content-Type":"application/json","Set-Cookie":"no"},"body":"`+body+`"}`)
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		g := r.post("k", "x")
		g.ok(t, 201, `{"id":"ch_1"}`)
		if g.header.Get("Idempotent-Replayed") != "true" || g.header.Get("Content-Type") != "application/json" || g.header.Get("Set-Cookie") != "" {
			t.Errorf("%v", g.header)
		}
		d := r.lookup("k")
		last := d.History[len(d.History)-1]
		if d.Outcome.Source != keystore.FromOperator || last.By != "operator dana" || last.Why != "seen in the provider's dashboard" {
			t.Errorf("%+v %+v", d.Outcome, last)
		}
		p.counted("k", 1)
	})
	t.Run("as completed, without one", func(t *testing.T) {
		p, r := doubtful(t)
		if w := r.resolve("k", `{"as":"completed","reason":"r","actor":"a"}`); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		r.post("k", "x").is(t, 409, codeNotRetained, retryNever)
		p.counted("k", 1)
	})
	t.Run("as not applied: exactly one more send", func(t *testing.T) {
		p, r := doubtful(t)
		if w := r.resolve("k", `{"as":"not_applied","reason":"r","actor":"a"}`); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		r.post("k", "other payload").is(t, 422, codeConflict, retryNewKey)
		r.post("k", "x").ok(t, 200, "second send")
		r.post("k", "x").ok(t, 200, "second send")
		p.counted("k", 2)
	})
	t.Run("as abandoned", func(t *testing.T) {
		p, r := doubtful(t)
		if w := r.resolve("k", `{"as":"abandoned","reason":"r","actor":"a"}`); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		r.post("k", "x").is(t, 409, codeAbandoned, retryNever)
		p.counted("k", 1)
	})
}

// TestAnApprovalIsSpent: an approved send that ends in doubt again is not sent
// a third time.
func TestAnApprovalIsSpent(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) })
	r := start(t, p.URL, nil, nil)
	r.post("k", "x").ok(t, 502)
	if w := r.resolve("k", `{"as":"not_applied","reason":"r","actor":"a"}`); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	r.post("k", "x").ok(t, 502)
	r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
	p.counted("k", 2)
}

func TestOnlyADoubtIsSettled(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	r.post("done", "x").ok(t, 201)
	w := r.resolve("done", `{"as":"not_applied","reason":"r","actor":"a"}`)
	if w.Code != 409 || !strings.Contains(w.Body.String(), "It was settled as completed at ") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := r.resolve("nothing", `{"as":"not_applied","reason":"r","actor":"a"}`); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, bad := range []string{``, `{`, `{"as":"completed","reason":"r"}`, `{"as":"completed","actor":"a"}`, `{"as":"completed","reason":" ","actor":"a"}`, `{"as":"done","reason":"r","actor":"a"}`,
		`{"as":"abandoned","reason":"r","actor":"a","status":200}`, `{"as":"completed","reason":"r","actor":"a","status":99}`, `{"as":"completed","reason":"r","actor":"a","body":"eA=="}`, `{"as":"completed","reason":"r","actor":"a","unheard":1}`} {
		if w := r.resolve("done", bad); w.Code != 400 {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
	p.counted("done", 1)
}

func TestOfConcurrentResolutionsOneWins(t *testing.T) {
	_, r := doubtful(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for i := range 16 {
		wg.Go(func() {
			as := []string{"completed", "not_applied", "abandoned"}[i%3]
			w := r.resolve("k", fmt.Sprintf(`{"as":%q,"reason":"r","actor":"a%d"}`, as, i))
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
		})
	}
	wg.Wait()
	// An operation cleared as not applied is free, and may then be abandoned.
	if codes[200]+codes[409] != 16 || codes[200] < 1 || codes[200] > 2 {
		t.Errorf("%v", codes)
	}
}

func TestTheListShowsEveryDoubtAndPages(t *testing.T) {
	fake := storetest.NewFake()
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Idempotency-Key"), "silent") {
			<-release
		}
		w.WriteHeader(500)
	})
	defer close(release)
	callers, _ := policy.NewCallers([]policy.Caller{{Name: "alice", Token: "alice-token-0123456789"}})
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.Rules.Callers = callers })
	auth := []string{"Fencepost-Authorization", "Bearer alice-token-0123456789"}
	for i := range 7 {
		r.post(fmt.Sprint("doubt", i), "x", auth...).ok(t, 500)
		fake.Advance(time.Second)
	}
	go r.post("silent/1", "x", auth...)
	p.await("silent/1")
	fake.Advance(time.Minute) // the owner falls silent
	var got []string
	next, pages := "", 0
	for {
		w := r.adminCall("/v1/operations?limit=3&cursor=" + url.QueryEscape(next))
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		var page operationsPage
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Operations {
			got = append(got, o.Scope+"/"+o.Key)
		}
		pages++
		if next = page.Next; next == "" {
			break
		}
	}
	want := "[alice/doubt0 alice/doubt1 alice/doubt2 alice/doubt3 alice/doubt4 alice/doubt5 alice/doubt6 alice/silent/1]"
	if fmt.Sprint(got) != want || pages != 3 {
		t.Errorf("%d pages: %v", pages, got)
	}
	for query, n := range map[string]int{"?scope=alice": 8, "?scope=bob": 0, "?route=all": 8, "?route=none": 0, "?older_than=62s": 6, "?state=completed": 0, "?state=dispatched": 0} {
		w := r.adminCall("/v1/operations" + query)
		if c := strings.Count(w.Body.String(), `"operation":`); w.Code != 200 || c != n {
			t.Errorf("%s: %d, %d operations, want %d", query, w.Code, c, n)
		}
	}
	for _, bad := range []string{"?state=lost", "?older_than=long", "?limit=0", "?limit=x"} {
		if w := r.adminCall("/v1/operations" + bad); w.Code != 400 {
			t.Errorf("%s: %d", bad, w.Code)
		}
	}
	if w := r.adminCall("/v1/operations/alice/silent%2F1"); w.Code != 200 || !strings.Contains(w.Body.String(), `"state": "unknown"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := r.adminCall("/v1/operations/alice/doubt1/response"); w.Code != 500 || w.Header().Get("Fencepost-State") != "unknown" {
		t.Errorf("the ambiguous answer: %d %v", w.Code, w.Header())
	}
}

// TestADecisionIsAboutTheAttemptThatWasSeen: what was found out of one send says
// nothing of a later one.
func TestADecisionIsAboutTheAttemptThatWasSeen(t *testing.T) {
	p := newProvider(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	p.Config.ErrorLog = nil
	r := start(t, p.URL, nil, nil)
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	if w := r.resolve("k", `{"as":"not_applied","reason":"r","actor":"a","attempt":1}`); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	// Another person still looks at the first attempt.
	for _, as := range []string{"not_applied", "completed", "abandoned"} {
		if w := r.resolve("k", `{"as":"`+as+`","reason":"r","actor":"b","attempt":1}`); w.Code != 409 || !strings.Contains(w.Body.String(), "2 is the current one") {
			t.Errorf("%s: %d %s", as, w.Code, w.Body)
		}
	}
	r.reads("k", keystore.Unknown)
	p.counted("k", 2)
}

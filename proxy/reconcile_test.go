package proxy

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
	"fencepost/policy"
)

// bank is a provider that keeps charges by reference and can be asked for them.
// It is the judge: attempts and effects are its own.
type bank struct {
	*provider
	mu      sync.Mutex
	charges map[string]int // by order
	lookups int
	// answer overrides the lookup; nil answers truthfully.
	answer http.HandlerFunc
	// lose says what becomes of the answer to a charge.
	lose func(w http.ResponseWriter)
}

func newBank(t *testing.T) *bank {
	b := &bank{charges: map[string]int{}}
	b.provider = newProvider(t, nil)
	plain := b.provider.Config.Handler
	b.provider.handle = func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		lose := b.lose
		b.mu.Unlock()
		b.provider.mu.Lock()
		body := b.provider.bodies[r.Header.Get("Idempotency-Key")]
		b.provider.mu.Unlock()
		var req struct {
			Order string `json:"order_id"`
		}
		_ = json.Unmarshal([]byte(body), &req)
		b.mu.Lock()
		b.charges[req.Order]++
		b.mu.Unlock()
		if lose != nil {
			lose(w)
			return
		}
		w.WriteHeader(201)
		fmt.Fprintf(w, `{"id":"ch_%s"}`, req.Order)
	}
	b.provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "GET" {
			plain.ServeHTTP(w, r)
			return
		}
		b.mu.Lock()
		b.lookups++
		answer := b.answer
		n := b.charges[r.URL.Query().Get("order")]
		b.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer lookup-secret" {
			w.WriteHeader(401)
			return
		}
		if answer != nil {
			answer(w, r)
			return
		}
		data := strings.TrimSuffix(strings.Repeat(`{"id":"ch_`+r.URL.Query().Get("order")+`"},`, n), ",")
		fmt.Fprintf(w, `{"data":[%s]}`, data)
	})
	return b
}

func (b *bank) set(lose func(http.ResponseWriter), answer http.HandlerFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lose, b.answer = lose, answer
}

// effects fails the test unless the order was charged exactly so often.
func (b *bank) effects(order string, n int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.charges[order] != n {
		b.t.Errorf("order %s was charged %d times, want %d", order, b.charges[order], n)
	}
}

func (b *bank) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lookups
}

func aborts(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func expr(t *testing.T, compile func(string) (*policy.Expr, error), text string) *policy.Expr {
	t.Helper()
	e, err := compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// reconciled is a route that asks the bank.
func reconciled(t *testing.T, b *bank, settle time.Duration) func(*policy.Route) {
	tmpl, err := policy.CompileTemplate(b.URL+"/v1/charges?order={captured.order}", []string{"order"})
	if err != nil {
		t.Fatal(err)
	}
	return func(r *policy.Route) {
		r.Capture = []policy.CaptureRule{{Name: "order", From: expr(t, policy.CompileCapture, "request.json.order_id")}}
		r.Reconcile = &policy.Reconciler{
			Method: "GET", URL: tmpl, Header: map[string]string{"Authorization": "Bearer lookup-secret"},
			Confirmed: expr(t, policy.CompileLookup, "lookup.status == 200 && size(lookup.json.data) == 1"),
			NotFound:  expr(t, policy.CompileLookup, "lookup.status == 200 && size(lookup.json.data) == 0"),
			Complete:  true, Settle: settle, Status: 201, Body: expr(t, policy.CompileLookupValue, "lookup.json.data[0]"),
			Timeout: 2 * time.Second, Every: 30 * time.Second, MaxEvery: time.Hour,
		}
	}
}

func order(n string) string { return `{"order_id":"` + n + `"}` }

func TestALostAnswerIsConfirmedByALookup(t *testing.T) {
	b := newBank(t)
	fake := storetest.NewFake()
	r := start(t, b.URL, reconciled(t, b, 0), func(c *Config) { c.Ledger = fake })
	b.set(aborts, nil)
	r.post("k", order("o1")).is(t, 502, codeUnknown, retryAfterResolution)
	b.effects("o1", 1)
	g := r.post("k", order("o1"))
	g.ok(t, 201, `{"id":"ch_o1"}`)
	if g.header.Get("Idempotent-Replayed") != "true" || g.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", g.header)
	}
	d := r.lookup("k")
	if d.Outcome.Source != keystore.FromReconcile || d.History[len(d.History)-1].Event != keystore.Confirm || d.Captured["order"] != "o1" {
		t.Errorf("%+v", d)
	}
	b.effects("o1", 1)
	if strings.Contains(r.log.String(), "lookup-secret") {
		t.Error("the lookup's credential is in the log")
	}
}

func TestNotFoundIsProofOnlyWhenCompleteAndSettled(t *testing.T) {
	b := newBank(t)
	fake := storetest.NewFake()
	r := start(t, b.URL, reconciled(t, b, 30*time.Second), func(c *Config) { c.Ledger = fake })
	// The provider answers 503 and does nothing.
	b.set(func(w http.ResponseWriter) {
		b.mu.Lock()
		b.charges["o1"] = 0
		b.mu.Unlock()
		w.WriteHeader(503)
	}, nil)
	r.post("k", order("o1")).ok(t, 503)
	b.set(nil, nil)
	r.post("k", order("o1")).is(t, 409, codeUnknown, retryAfterResolution) // too early to be believed
	b.effects("o1", 0)
	if d := r.lookup("k"); len(d.Evidence) != 1 || !strings.Contains(d.Evidence[0].Why, "which is not proof") || d.Probes != 1 {
		t.Errorf("%+v", d.Evidence)
	}
	fake.Advance(31 * time.Second)
	r.post("k", order("o1")).ok(t, 201, `{"id":"ch_o1"}`) // one more send
	r.post("k", order("o1")).ok(t, 201, `{"id":"ch_o1"}`) // and a replay
	b.effects("o1", 1)
	if a := b.provider.attempts["k"]; a != 2 {
		t.Errorf("%d attempts", a)
	}
}

func TestADoubtfulLookupSettlesNothing(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"two matches":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":[{},{}]}`) },
		"not JSON":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>`) },
		"a server error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"no answer":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"an endless answer": func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		},
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"data":[]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBank(t)
			r := start(t, b.URL, reconciled(t, b, 0), nil)
			b.set(aborts, answer)
			r.post("k", order("o1")).is(t, 502, codeUnknown, retryAfterResolution)
			r.post("k", order("o1")).is(t, 409, codeUnknown, retryAfterResolution)
			b.effects("o1", 1)
			if d := r.lookup("k"); d.State != keystore.Unknown || d.Probes != 1 || len(d.Evidence) != 1 {
				t.Errorf("%v, %d probes, %+v", d.State, d.Probes, d.Evidence)
			}
			// A person still can.
			if w := r.resolve("k", `{"as":"completed","reason":"r","actor":"a"}`); w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			b.effects("o1", 1)
		})
	}
}

func TestAReferenceThatIsMissingIsNotLookedUp(t *testing.T) {
	b := newBank(t)
	r := start(t, b.URL, reconciled(t, b, 0), nil)
	b.set(aborts, nil)
	r.post("k", `{"no":"order"}`).is(t, 502, codeUnknown, retryAfterResolution)
	r.post("k", `{"no":"order"}`).is(t, 409, codeUnknown, retryAfterResolution)
	if b.asked() != 0 {
		t.Error("something else was looked up")
	}
}

func TestTheScheduleSettlesWithBackOff(t *testing.T) {
	b := newBank(t)
	fake := storetest.NewFake()
	var away atomic.Bool
	away.Store(true)
	r := start(t, b.URL, reconciled(t, b, 10*time.Second), func(c *Config) { c.Ledger = fake })
	b.set(aborts, func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(503)
			return
		}
		fmt.Fprint(w, `{"data":[{"id":"ch_o1"}]}`)
	})
	r.post("k", order("o1")).is(t, 502, codeUnknown, retryAfterResolution)
	run := func(after time.Duration, asked int) {
		t.Helper()
		fake.Advance(after)
		if err := r.proxy.ReconcileDue(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := b.asked(); n != asked {
			t.Fatalf("asked %d times, want %d", n, asked)
		}
	}
	run(0, 0)              // not settled yet
	run(10*time.Second, 1) // the first look
	run(20*time.Second, 1) // every 30 s, give or take a fifth
	run(20*time.Second, 2) // the second
	run(40*time.Second, 2) // twice as long now
	run(40*time.Second, 3) // the third
	run(time.Second, 3)    // and no sooner
	away.Store(false)      // the lookup works again
	run(3*time.Minute, 4)  // and settles it
	run(10*time.Hour, 4)   // nothing is left to ask
	r.post("k", order("o1")).ok(t, 201, `{"id":"ch_o1"}`)
	b.effects("o1", 1)
}

// TestTheScheduleYieldsToWhoAskedFirst: between the moment the schedule read that
// an operation is due and its turn, a duplicate asked.
func TestTheScheduleYieldsToWhoAskedFirst(t *testing.T) {
	b := newBank(t)
	r := start(t, b.URL, reconciled(t, b, 0), nil)
	b.set(aborts, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	r.post("k", order("o1")).is(t, 502, codeUnknown, retryAfterResolution)
	seen, err := r.store.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	r.post("k", order("o1")).is(t, 409, codeUnknown, retryAfterResolution)
	route := r.proxy.routeNamed("all")
	if !r.proxy.due(&seen.Record, seen.Now, route) {
		t.Fatal("the record that the schedule read was not due")
	}
	if _, _, err := r.proxy.reconcile(t.Context(), seen, route, true); !errors.Is(err, errNotDue) {
		t.Errorf("the schedule asked again: %v", err)
	}
	if n := b.asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if _, _, err := r.proxy.reconcile(t.Context(), seen, route, false); err != nil {
		t.Errorf("a person could not ask: %v", err)
	}
	if n := b.asked(); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

// TestACrashedOwnersEffectIsReconciledByAnother: killed after the remote effect,
// before the record.
func TestACrashedOwnersEffectIsReconciledByAnother(t *testing.T) {
	b := newBank(t)
	fake := storetest.NewFake()
	r := start(t, b.URL, reconciled(t, b, 0), func(c *Config) { c.Ledger = fake })
	// Another instance reserved, marked, sent, and is gone.
	id := keystore.ID{Scope: "default", Key: "k"}
	b.charges["o1"] = 1
	var cur *keystore.Record
	for _, ev := range []keystore.Event{
		{Kind: keystore.Reserve, Attempt: "a", Silence: 30 * time.Second, Keep: time.Hour, New: &keystore.Record{ID: id, Operation: "op", Fingerprint: "raw1:x", Route: "all", Captured: map[string]string{"order": "o1"}}},
		{Kind: keystore.Mark, Attempt: "a", Silence: 30 * time.Second},
	} {
		ev.By, ev.Writer = "dead", "dead/"+ev.Kind.String()
		w, no := keystore.Next(cur, ev, 0, nil)
		if no != keystore.Allowed {
			t.Fatal(no)
		}
		f := fake.Swap
		if cur == nil {
			f = fake.Insert
		}
		rep, err := f(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		cur = &rep.Record
	}
	if err := r.proxy.ReconcileDue(t.Context()); err != nil || b.asked() != 0 {
		t.Fatalf("a living owner's operation was looked up: %v", err)
	}
	fake.Advance(time.Minute)
	if err := r.proxy.ReconcileDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := r.lookup("k")
	if d.State != keystore.Completed || d.Outcome.Source != keystore.FromReconcile {
		t.Errorf("%v %+v", d.State, d.Outcome)
	}
	b.effects("o1", 1)
}

func TestOneReconciliationAtATime(t *testing.T) {
	b := newBank(t)
	fake := storetest.NewFake()
	gate := make(chan struct{})
	b.set(aborts, func(w http.ResponseWriter, _ *http.Request) { <-gate; fmt.Fprint(w, `{"data":[{"id":"x"}]}`) })
	one := start(t, b.URL, reconciled(t, b, 0), func(c *Config) { c.Ledger = fake; c.Instance = "one" })
	two := start(t, b.URL, reconciled(t, b, 0), func(c *Config) { c.Ledger = fake; c.Instance = "two" })
	one.post("k", order("o1")).is(t, 502, codeUnknown, retryAfterResolution)
	answers := make(chan got, 20)
	for i := range 20 {
		go func() { answers <- []*rig{one, two}[i%2].post("k", order("o1")) }()
	}
	for b.asked() == 0 {
		time.Sleep(time.Millisecond)
	}
	// Those that did not get to ask are told what is known so far.
	for range 19 {
		(<-answers).is(t, 409, codeUnknown, retryAfterResolution)
	}
	close(gate)
	(<-answers).ok(t, 201, `{"id":"x"}`)
	if n := b.asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	b.effects("o1", 1)
}

func TestTheLedgerMayFailDuringRecovery(t *testing.T) {
	b := newBank(t)
	fake := storetest.NewFake()
	r := start(t, b.URL, reconciled(t, b, 0), func(c *Config) { c.Ledger = fake })
	b.set(aborts, nil)
	r.post("k", order("o1")).is(t, 502, codeUnknown, retryAfterResolution)
	for _, applied := range []bool{false, true} {
		fake.SetFault(func(c storetest.Call) storetest.Fault {
			if c.Op == "swap" && c.State == keystore.Completed {
				return storetest.Fault{Err: errAway, Applied: applied}
			}
			return storetest.Fault{}
		})
		r.post("k", order("o1"))
		fake.SetFault(nil)
		fake.Advance(time.Minute)
		r.post("k", order("o1")).ok(t, 201, `{"id":"ch_o1"}`)
		b.effects("o1", 1)
	}
}

func TestAnOperatorReconcilesOnDemand(t *testing.T) {
	b := newBank(t)
	r := start(t, b.URL, reconciled(t, b, 0), nil)
	call := func(key string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r.proxy.Admin().ServeHTTP(w, httptest.NewRequest("POST", "http://127.0.0.1/v1/operations/default/"+key+"/reconcile", nil))
		return w
	}
	b.set(aborts, nil)
	r.post("k", order("o1")).is(t, 502, codeUnknown, retryAfterResolution)
	if w := call("k"); w.Code != 200 || !strings.Contains(w.Body.String(), `"evidence": "confirmed"`) || !strings.Contains(w.Body.String(), `"state": "completed"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := call("k"); w.Code != 409 || !strings.Contains(w.Body.String(), "It reads completed") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := call("nothing"); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAnUpstreamThatRecognisesTheKeyIsAskedAgainInTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration
		sends int
	}{{"in time", 59 * time.Minute, 2}, {"too late", 61 * time.Minute, 1}} {
		t.Run(c.name, func(t *testing.T) {
			fake := storetest.NewFake()
			var keys sync.Map
			var n atomic.Int32
			p := newProvider(t, nil)
			p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				keys.Store(r.Header.Get("Request-Id"), true)
				if n.Add(1) == 1 {
					panic(http.ErrAbortHandler)
				}
				fmt.Fprint(w, "the same effect")
			})
			r := start(t, p.URL, func(r *policy.Route) {
				r.UpstreamKey = policy.UpstreamKeyRule{Send: policy.SendDerived, Header: "Request-Id", Deduplicates: time.Hour}
			}, func(c *Config) { c.Ledger = fake })
			r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
			fake.Advance(c.after)
			if g := r.post("k", "x"); c.sends == 2 {
				g.ok(t, 200, "the same effect")
			} else {
				g.is(t, 409, codeUnknown, retryAfterResolution)
			}
			r.post("k", "other").is(t, 422, codeConflict, retryNewKey)
			if int(n.Load()) != c.sends {
				t.Errorf("%d sends", n.Load())
			}
			keys.Range(func(k, _ any) bool {
				if want := policy.DeriveUpstreamKey("default", "k", policy.Target{Scheme: "http", Host: strings.TrimPrefix(p.URL, "http://")}); k != want {
					t.Errorf("the upstream got key %v, want %v", k, want)
				}
				return true
			})
		})
	}
}

func TestOutcomeRulesDecide(t *testing.T) {
	var n atomic.Int32
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			fmt.Fprint(w, `{"ok":false,"error":"ratelimited"}`)
			return
		}
		fmt.Fprint(w, `{"ok":true}`)
	})
	r := start(t, p.URL, func(r *policy.Route) {
		r.Outcomes = []policy.OutcomeRule{{When: expr(t, policy.CompileOutcome, "response.status == 200 && response.json.ok == false"), Class: policy.ClassNotApplied}}
	}, nil)
	g := r.post("k", "x")
	g.ok(t, 200, `{"ok":false,"error":"ratelimited"}`)
	if g.header.Get("Fencepost-State") != "reserved" {
		t.Errorf("%v", g.header)
	}
	r.post("k", "x").ok(t, 200, `{"ok":true}`)
	r.post("k", "x").ok(t, 200, `{"ok":true}`)
	p.counted("k", 2)
}

// TestOutcomeRulesReadWhatACallerWouldGetCompressed: a rule that sees nothing is
// not true, and an answer that should be in doubt would pass for final.
func TestOutcomeRulesReadWhatACallerWouldGetCompressed(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			fmt.Fprint(w, `{"ok":false}`)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, `{"ok":false}`)
		z.Close()
	})
	r := start(t, p.URL, func(r *policy.Route) {
		r.Outcomes = []policy.OutcomeRule{{When: expr(t, policy.CompileOutcome, "response.json.ok == false"), Class: policy.ClassUnknown}}
	}, nil)
	g := r.post("k", "x", "Accept-Encoding", "gzip, br")
	g.ok(t, 200, `{"ok":false}`)
	if g.header.Get("Fencepost-State") != "unknown" {
		t.Errorf("%v", g.header)
	}
	r.post("k", "x", "Accept-Encoding", "gzip, br").is(t, 409, codeUnknown, retryAfterResolution)
}

// TestAKeyThatTheUpstreamRecognisesForOtherMethodsIsNoReasonToSendAgain.
func TestAKeyThatTheUpstreamRecognisesForOtherMethodsIsNoReasonToSendAgain(t *testing.T) {
	for method, sends := range map[string]int32{"POST": 2, "PATCH": 1, "post": 1} {
		var n atomic.Int32
		p := newProvider(t, nil)
		p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
		})
		r := start(t, p.URL, func(r *policy.Route) {
			r.UpstreamKey = policy.UpstreamKeyRule{Deduplicates: time.Hour, Methods: []string{"POST"}}
		}, nil)
		for range 3 {
			r.call(method, "/links/1", "x", "Idempotency-Key", "k")
		}
		if n.Load() != sends {
			t.Errorf("%s: %d sends, want %d", method, n.Load(), sends)
		}
	}
}

// TestNotFoundIsAboutTheAttemptThatWasAskedAbout: while the provider looks, an operator
// releases the operation, and it is sent again. What the provider did not find then
// proves nothing of that send.
func TestNotFoundIsAboutTheAttemptThatWasAskedAbout(t *testing.T) {
	b := newBank(t)
	fake := storetest.NewFake()
	asked, answer, done := make(chan bool), make(chan bool), make(chan error)
	b.lose = aborts
	b.answer = func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		<-answer
		fmt.Fprint(w, `{"data":[]}`)
	}
	r := start(t, b.URL, reconciled(t, b, 0), func(c *Config) { c.Ledger = fake })
	r.post("k", order("o")).is(t, 502, codeUnknown, retryAfterResolution)
	go func() { done <- r.proxy.ReconcileDue(t.Context()) }()
	<-asked
	rep, err := fake.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, no, err := r.proxy.ledger.change(t.Context(), rep.Record, rep.Now, keystore.Event{Kind: keystore.Clear, By: "ann", Keep: time.Hour, Why: "not in the books"}); no != keystore.Allowed || err != nil {
		t.Fatal(no, err)
	}
	r.post("k", order("o")).is(t, 502, codeUnknown, retryAfterResolution)
	close(answer)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if d := r.lookup("k"); d.State != keystore.Unknown || d.Attempt != 2 {
		t.Errorf("%v after attempt %d", d.State, d.Attempt)
	}
}

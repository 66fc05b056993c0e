package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
	"fencepost/policy"
)

var errAway = errors.New("the ledger is away")

// TestEveryLedgerFault drives each write of an exchange into a fault, written
// or not, and looks at what was sent, what was said, and what is left when the
// ledger is back.
func TestEveryLedgerFault(t *testing.T) {
	for _, c := range []struct {
		op      string
		state   keystore.State
		applied bool
		status  int
		sends   int
		after   keystore.State // once the ledger is back and pending events are written
		again   int            // effects after a retry
	}{
		{"insert", keystore.Reserved, false, 503, 0, keystore.StateNone, 1},
		{"insert", keystore.Reserved, true, 503, 0, keystore.Reserved, 1},
		{"swap", keystore.Dispatched, false, 503, 0, keystore.Reserved, 1},
		{"swap", keystore.Dispatched, true, 503, 0, keystore.Reserved, 1},
		{"swap", keystore.Completed, false, 201, 1, keystore.Completed, 1},
		{"swap", keystore.Completed, true, 201, 1, keystore.Completed, 1},
	} {
		t.Run(fmt.Sprintf("%s to %v, applied %v", c.op, c.state, c.applied), func(t *testing.T) {
			fake := storetest.NewFake()
			var away atomic.Bool
			fake.SetFault(func(call storetest.Call) storetest.Fault {
				if call.Op == c.op && call.State == c.state && !away.Load() {
					away.Store(true)
					return storetest.Fault{Err: errAway, Applied: c.applied}
				}
				if away.Load() {
					return storetest.Fault{Err: fmt.Errorf("%w: %w", errAway, keystore.ErrNotWritten)}
				}
				return storetest.Fault{}
			})
			p := newProvider(t, nil)
			r := start(t, p.URL, nil, func(cfg *Config) { cfg.Ledger = fake })
			g := r.post("k", "x")
			if g.status != c.status {
				t.Fatalf("status %d: %s", g.status, g.body)
			}
			if c.status == 503 {
				g.is(t, 503, codeLedgerUnavailable, retrySameKey)
				if g.header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			} else if g.body != `{"key":"k","effect":1}` || g.header.Get("Fencepost-State") != "dispatched" {
				t.Errorf("the caller got %q in state %q", g.body, g.header.Get("Fencepost-State"))
			}
			p.counted("k", c.sends)
			// While the ledger is away everything is refused and nothing is sent.
			r.post("k", "x").is(t, 503, codeLedgerUnavailable, retrySameKey)
			r.post("other", "x").is(t, 503, codeLedgerUnavailable, retrySameKey)
			p.counted("k", c.sends)
			p.counted("other", 0)

			fake.SetFault(nil)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if n := r.proxy.backlog.wait(ctx); n != 0 {
				t.Fatalf("%d events still wait", n)
			}
			if c.after == keystore.StateNone {
				r.call("GET", lookupPath("k"), "").is(t, 404, codeNoOperation, retrySameKey)
			} else {
				r.reads("k", c.after)
			}
			r.post("k", "x").ok(t, 201, `{"key":"k","effect":1}`)
			p.counted("k", c.again)
		})
	}
}

func TestNothingNewIsSentWhenOutcomesFindNoRoom(t *testing.T) {
	fake := storetest.NewFake()
	fake.SetFault(func(c storetest.Call) storetest.Fault {
		if c.State == keystore.Completed {
			return storetest.Fault{Err: errAway}
		}
		return storetest.Fault{}
	})
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.MaxPending = 3 })
	for i := range 3 {
		r.post(fmt.Sprint("k", i), "x").ok(t, 201)
	}
	r.post("k3", "x").is(t, 503, codeLedgerUnavailable, retrySameKey)
	p.counted("k3", 0)
}

// TestAPanicIsADoubtOnlyAfterTheMark: a bug in this process must not leave an
// attempt that looks alive.
func TestAPanicIsADoubtOnlyAfterTheMark(t *testing.T) {
	for _, c := range []struct {
		at   keystore.State
		want keystore.State
	}{{keystore.Dispatched, keystore.Reserved}, {keystore.Completed, keystore.Unknown}} {
		fake := storetest.NewFake()
		var once atomic.Bool
		fake.SetFault(func(call storetest.Call) storetest.Fault {
			if call.State == c.at && once.CompareAndSwap(false, true) {
				panic("a bug")
			}
			return storetest.Fault{}
		})
		p := newProvider(t, nil)
		r := start(t, p.URL, nil, func(cfg *Config) { cfg.Ledger = fake })
		r.front.Config.ErrorLog = r.proxy.errorLog
		if g := r.post("k", "x"); g.err == nil {
			t.Errorf("the caller got %d %s", g.status, g.body)
		}
		r.reads("k", c.want)
	}
}

// TestALateResultOfASupersededAttemptIsEvidence: the first attempt's result
// arrives after an operator settled the doubt.
func TestALateResultOfASettledOperationIsEvidence(t *testing.T) {
	fake := storetest.NewFake()
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release; io.WriteString(w, "late") })
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	done := make(chan got)
	go func() { done <- r.post("k", "x") }()
	p.await("k")
	fake.Advance(time.Hour)
	rep, err := fake.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	w, no := keystore.Next(&rep.Record, keystore.Event{Kind: keystore.Abandon, Writer: "op", By: "operator", Why: "told so by the provider", Keep: time.Hour}, rep.Now, nil)
	if no != keystore.Allowed {
		t.Fatal(no)
	}
	if rep, err = fake.Swap(t.Context(), w); err != nil || rep.Result != keystore.Written {
		t.Fatal(rep, err)
	}
	close(release)
	g := <-done
	if g.body != "late" || g.header.Get("Fencepost-State") != "abandoned" {
		t.Errorf("the caller got %q, state %q", g.body, g.header.Get("Fencepost-State"))
	}
	d := r.lookup("k")
	if d.State != keystore.Abandoned || len(d.Evidence) != 1 || !strings.Contains(d.Evidence[0].Why, "complete refused") || d.Evidence[0].Status != 200 {
		t.Errorf("state %v, evidence %+v", d.State, d.Evidence)
	}
	r.post("k", "x").is(t, 409, codeAbandoned, retryNever)
	p.counted("k", 1)
}

func TestTwoProxiesOneLedgerOneEffect(t *testing.T) {
	fake := storetest.NewTickingFake()
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(20 * time.Millisecond)
		io.WriteString(w, "once")
	})
	rigs := []*rig{
		start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.Instance = "one" }),
		start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.Instance = "two" }),
	}
	answers := make(chan got, 320)
	for i := range 320 {
		go func() { answers <- rigs[i%2].post("k", "x", "Prefer", "wait=20") }()
	}
	for range 320 {
		(<-answers).ok(t, 200, "once")
	}
	p.counted("k", 1)
}

func TestWaitersAskTheLedgerTogether(t *testing.T) {
	fake := storetest.NewTickingFake()
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release; io.WriteString(w, "done") })
	one := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.Instance = "one" })
	two := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.Instance = "two" })
	first := make(chan got, 1)
	go func() { first <- one.post("k", "x") }()
	p.await("k")
	const many = 50
	answers := make(chan got, many)
	began := time.Now()
	for range many {
		go func() { answers <- two.post("k", "x", "Prefer", "wait=20") }()
	}
	for two.proxy.waiters.len() < many {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond)
	gets := fake.Calls()["get"]
	if most := int(time.Since(began)/(firstLook/2)) + 5; gets > most {
		t.Errorf("%d waiters asked the ledger %d times in %v", many, gets, time.Since(began))
	}
	close(release)
	(<-first).ok(t, 200, "done")
	for range many {
		(<-answers).ok(t, 200, "done")
	}
	if n := two.proxy.waiters.len(); n != 0 {
		t.Errorf("%d still wait", n)
	}
	p.counted("k", 1)
}

func TestTooManyWaitersAreTurnedAway(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release })
	r := start(t, p.URL, nil, func(c *Config) { c.MaxWaiters = 1 })
	first, second := make(chan got, 1), make(chan got, 1)
	go func() { first <- r.post("k", "x") }()
	p.await("k")
	go func() { second <- r.post("k", "x", "Prefer", "wait=20") }()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		r.proxy.waiters.mu.Lock()
		waiting = r.proxy.waiters.total
		r.proxy.waiters.mu.Unlock()
	}
	r.post("k", "x", "Prefer", "wait=20").is(t, 409, codeInFlight, retrySameKey)
	close(release)
	(<-first).ok(t, 200)
	(<-second).ok(t, 200)
}

func TestStoreRoundTrips(t *testing.T) {
	fake := storetest.NewTickingFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	r.post("k", "x").ok(t, 201)
	if c := fake.Calls(); c["insert"] != 1 || c["swap"] != 2 || len(c) != 2 {
		t.Errorf("a first request costs %v", c)
	}
	r.post("k", "x").ok(t, 201)
	if c := fake.Calls(); c["insert"] != 2 || c["swap"] != 2 || len(c) != 2 {
		t.Errorf("after a replay: %v", c)
	}
	// With a connection at hand, claim and mark are one write.
	r.post("k2", "x").ok(t, 201)
	if c := fake.Calls(); c["insert"] != 3 || c["swap"] != 3 || len(c) != 2 {
		t.Errorf("after another first request: %v", c)
	}
	if d := r.lookup("k2"); d.Version != 2 || len(d.History) != 2 || d.History[0].To != keystore.Dispatched {
		t.Errorf("%+v", d)
	}
}

// takenOverAtTheMark lets another instance take the next reservation over just before
// it is marked.
func takenOverAtTheMark(t *testing.T, fake *storetest.Fake) {
	var once atomic.Bool
	fake.SetFault(func(call storetest.Call) storetest.Fault {
		if call.State == keystore.Dispatched && once.CompareAndSwap(false, true) {
			// Just before the mark: time passes, and another instance acts.
			fake.Advance(time.Minute)
			rep, err := fake.Get(context.Background(), call.ID)
			if err != nil {
				t.Error(err)
			}
			w, no := keystore.Next(&rep.Record, keystore.Event{Kind: keystore.TakeOver, Writer: "other/1", By: "other", Attempt: "other-attempt", Silence: time.Minute, Keep: time.Hour}, rep.Now, nil)
			if no != keystore.Allowed {
				t.Error(no)
			}
			if _, err := fake.Swap(context.Background(), w); err != nil {
				t.Error(err)
			}
		}
		return storetest.Fault{}
	})
}

// TestAReservationTakenOverIsNotSent: the owner was silent past its deadline
// between claim and mark, and another proxy took over.
func TestAReservationTakenOverIsNotSent(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	takenOverAtTheMark(t, fake)
	r.post("k", "x").is(t, 409, codeInFlight, retrySameKey)
	p.counted("k", 0)
	if d := r.lookup("k"); d.Owner != "other" || d.State != keystore.Reserved || len(d.Evidence) != 0 {
		t.Errorf("owner %q, state %v, evidence %v", d.Owner, d.State, d.Evidence)
	}
}

// TestANoteDoesNotCostTheOwnerItsMark: a write that changes nothing may come
// between claim and mark.
func TestANoteDoesNotCostTheOwnerItsMark(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	var once atomic.Bool
	fake.SetFault(func(call storetest.Call) storetest.Fault {
		if call.State == keystore.Dispatched && once.CompareAndSwap(false, true) {
			rep, _ := fake.Get(context.Background(), call.ID)
			w, _ := keystore.Next(&rep.Record, keystore.Event{Kind: keystore.Note, Writer: "other/1", By: "other", Attempt: "old", Why: "late"}, rep.Now, nil)
			if _, err := fake.Swap(context.Background(), w); err != nil {
				t.Error(err)
			}
		}
		return storetest.Fault{}
	})
	r.post("k", "x").ok(t, 201)
	p.counted("k", 1)
}

// TestALateAnswerSettlesTheDoubt: the caller was told "unknown"; the answer that
// comes after the time limit is the best evidence there is.
func TestALateAnswerSettlesTheDoubt(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		state  keystore.State
		again  func(*testing.T, got)
		sends  int
	}{
		{"final", 201, "late", keystore.Completed, func(t *testing.T, g got) { g.ok(t, 201, "late") }, 1},
		{"not applied", 429, "", keystore.Reserved, func(t *testing.T, g got) { g.ok(t, 429) }, 2},
		{"still unknown", 500, "", keystore.Unknown, func(t *testing.T, g got) { g.is(t, 409, codeUnknown, retryAfterResolution) }, 1},
		{"too large to keep", 200, strings.Repeat("x", 5000), keystore.Completed, func(t *testing.T, g got) { g.is(t, 409, codeNotRetained, retryNever) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			release := make(chan struct{})
			p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
				<-release
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			r := start(t, p.URL, func(r *policy.Route) { r.Timeout, r.Limits.Response = 50*time.Millisecond, 1000 }, func(c *Config) { c.LateAnswer = time.Minute })
			r.post("k", "x").is(t, 504, codeUnknown, retryAfterResolution)
			r.reads("k", keystore.Unknown)
			close(release)
			for r.proxy.inFlight.Load() > 0 {
				time.Sleep(time.Millisecond)
			}
			r.reads("k", c.state)
			if d := r.lookup("k"); c.state == keystore.Completed && d.Outcome.Source != keystore.FromLateResponse {
				t.Errorf("source %q", d.Outcome.Source)
			} else if c.state == keystore.Unknown && (len(d.Evidence) != 1 || d.Evidence[0].Status != 500) {
				t.Errorf("evidence %+v", d.Evidence)
			}
			c.again(t, r.post("k", "x"))
			p.counted("k", c.sends)
		})
	}
}

// TestALateAnswerMeetsAnotherDecision: it is visible, and changes nothing.
func TestALateAnswerMeetsAnotherDecision(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release; io.WriteString(w, "late") })
	r := start(t, p.URL, func(r *policy.Route) { r.Timeout = 50 * time.Millisecond }, func(c *Config) { c.LateAnswer = time.Minute })
	r.post("k", "x").is(t, 504, codeUnknown, retryAfterResolution)
	if w := r.resolve("k", `{"as":"abandoned","reason":"r","actor":"a"}`); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	close(release)
	for r.proxy.inFlight.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	d := r.lookup("k")
	if d.State != keystore.Abandoned || len(d.Evidence) != 1 || d.Evidence[0].Status != 200 || !strings.Contains(d.Evidence[0].Why, "complete refused") {
		t.Errorf("%v %+v", d.State, d.Evidence)
	}
	p.counted("k", 1)
}

// TestALateAnswerIsNotAwaitedForEver, nor across a stop.
func TestALateAnswerIsNotAwaitedForEver(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	for _, patience := range []time.Duration{0, 50 * time.Millisecond, time.Hour} {
		r := start(t, p.URL, func(r *policy.Route) { r.Timeout = 50 * time.Millisecond }, func(c *Config) { c.LateAnswer = patience })
		key := fmt.Sprint("k", patience)
		r.post(key, "x").is(t, 504, codeUnknown, retryAfterResolution)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if patience == time.Hour {
			cancel()
		}
		err := r.proxy.Shutdown(ctx)
		cancel()
		if cut := err != nil; cut != (patience == time.Hour) {
			t.Errorf("patience %v: %v", patience, err)
		}
		r.reads(key, keystore.Unknown)
		p.counted(key, 1)
	}
}

// TestAWaitingDuplicateHoldsNoConnection: where connections are bounded, those who
// wait for a result must leave them to those who have something to send.
func TestAWaitingDuplicateHoldsNoConnection(t *testing.T) {
	release, both := make(chan bool), make(chan bool, 2)
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); key != "other" {
			both <- true
			<-release
		}
		w.WriteHeader(201)
	})
	r := start(t, p.URL, nil, func(c *Config) { c.Upstream.MaxConns, c.Upstream.MaxIdle, c.MaxWait = 2, 2, time.Minute })
	var wg sync.WaitGroup
	for _, key := range []string{"one", "two"} {
		wg.Go(func() { r.post(key, "x").ok(t, 201) })
	}
	<-both
	<-both
	release <- true
	release <- true
	wg.Wait() // two connections are idle now
	wg.Go(func() { r.post("slow", "x").ok(t, 201) })
	<-both
	wg.Go(func() { r.post("slow", "x", "Prefer", "wait=30").ok(t, 201) })
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		r.proxy.waiters.mu.Lock()
		waiting = r.proxy.waiters.total
		r.proxy.waiters.mu.Unlock()
	}
	if s := r.proxy.ways.plain.pool.Stats(); s.InUse != 1 {
		t.Errorf("%+v", s)
	}
	r.post("other", "x").ok(t, 201)
	close(release)
	wg.Wait()
}

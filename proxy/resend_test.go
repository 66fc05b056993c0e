package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
	"fencepost/policy"
)

// rememberer is an upstream that loses its answer to the first request and then
// does what the test says. It counts what it is sent.
type rememberer struct {
	*httptest.Server
	mu    sync.Mutex
	sends int
	then  func(w http.ResponseWriter)
}

func newRememberer(t *testing.T, then func(http.ResponseWriter)) *rememberer {
	u := &rememberer{then: then}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		u.mu.Lock()
		u.sends++
		first, then := u.sends == 1, u.then
		u.mu.Unlock()
		if first {
			panic(http.ErrAbortHandler)
		}
		then(w)
	}))
	t.Cleanup(func() { u.CloseClientConnections(); u.Close() })
	return u
}

func (u *rememberer) is(t *testing.T, sends int) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sends != sends {
		t.Fatalf("%d sends, want %d", u.sends, sends)
	}
}

func recognises(r *policy.Route) {
	r.UpstreamKey = policy.UpstreamKeyRule{Send: policy.SendDerived, Deduplicates: time.Hour}
}

func refuses(w http.ResponseWriter) { w.WriteHeader(429) }

// TestARefusedResendProvesNothingOfTheFirstSend: a rate limiter that stands before
// the upstream's memory refuses the repetition without having looked at it.
func TestARefusedResendProvesNothingOfTheFirstSend(t *testing.T) {
	fake := storetest.NewFake()
	u := newRememberer(t, refuses)
	r := start(t, u.URL, recognises, func(c *Config) { c.Ledger, c.Retention = fake, 24*time.Hour })
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	for i := range 2 {
		g := r.post("k", "x")
		if g.status != 429 || g.header.Get("Fencepost-State") != "unknown" {
			t.Fatalf("%+v", g)
		}
		u.is(t, 2+i)
	}
	if d := r.lookup("k"); d.State != keystore.Unknown || d.Attempt != 3 {
		t.Errorf("%+v", d)
	}
	// The upstream has forgotten the key: now it would be a second effect.
	fake.Advance(61 * time.Minute)
	r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
	// Nor is the doubt itself forgotten.
	fake.Advance(100 * 24 * time.Hour)
	r.proxy.Sweep(t.Context())
	r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
	u.is(t, 3)
	// A person's word is about the effect, and allows one more send.
	rep, err := fake.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, no, err := r.proxy.ledger.change(t.Context(), rep.Record, rep.Now, keystore.Event{Kind: keystore.Clear, By: "ann", Keep: time.Hour, Why: "not in the books"}); no != keystore.Allowed || err != nil {
		t.Fatal(no, err)
	}
	if g := r.post("k", "x"); g.status != 429 || g.header.Get("Fencepost-State") != "reserved" {
		t.Errorf("%+v", g)
	}
}

// TestAResendThatCannotBeSentLeavesTheDoubt.
func TestAResendThatCannotBeSentLeavesTheDoubt(t *testing.T) {
	fake := storetest.NewFake()
	u := newRememberer(t, func(w http.ResponseWriter) { fmt.Fprint(w, "the same effect") })
	r := start(t, u.URL, recognises, func(c *Config) { c.Ledger = fake })
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	u.CloseClientConnections()
	u.Listener.Close()
	g := r.post("k", "x")
	g.is(t, 502, codeUnreachable, retrySameKey)
	if g.prob.State != "unknown" {
		t.Errorf("%s", g.body)
	}
	if d := r.lookup("k"); d.State != keystore.Unknown || d.Attempt != 1 {
		t.Errorf("%+v", d)
	}
	// Nor does it matter how often, or how late.
	fake.Advance(61 * time.Minute)
	r.post("k", "x").is(t, 409, codeUnknown, retryAfterResolution)
	u.is(t, 1)
}

// TestTwoDuplicatesResendOnce at a time, and a lease counts for it as for any send.
func TestTwoDuplicatesResendOnce(t *testing.T) {
	arrived, release := make(chan bool, 1), make(chan bool)
	u := newRememberer(t, func(w http.ResponseWriter) {
		arrived <- true
		<-release
		fmt.Fprint(w, "the same effect")
	})
	r := start(t, u.URL, recognises, nil)
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	r.post("k", "x", "Fencepost-Lease", `"run";token=3`).is(t, 412, codeLeaseStale, retryNever)
	u.is(t, 1)
	done := make(chan got, 1)
	go func() { done <- r.post("k", "x") }()
	<-arrived
	r.post("k", "x").is(t, 409, codeInFlight, retrySameKey)
	close(release)
	(<-done).ok(t, 200, "the same effect")
	u.is(t, 2)
}

// TestALateRefusalOfAResendLeavesTheDoubt.
func TestALateRefusalOfAResendLeavesTheDoubt(t *testing.T) {
	release := make(chan bool)
	u := newRememberer(t, func(w http.ResponseWriter) { <-release; w.WriteHeader(429) })
	r := start(t, u.URL, func(r *policy.Route) { recognises(r); r.Timeout = 50 * time.Millisecond }, func(c *Config) { c.LateAnswer = time.Minute })
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	r.post("k", "x").is(t, 504, codeUnknown, retryAfterResolution)
	close(release)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		d := r.lookup("k")
		if last := d.History[len(d.History)-1]; last.Event == keystore.Release {
			if d.State != keystore.Unknown {
				t.Errorf("%+v", d)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the late answer is not in the record: %+v", d)
		}
	}
}

// TestAKeyThatIsReliedUponHasOneSpelling: quoted and bare are one key here, so they
// must be one to the upstream that is to recognise it.
func TestAKeyThatIsReliedUponHasOneSpelling(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	p := newProvider(t, nil)
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Header.Get("Idempotency-Key")]++
		first := len(seen) == 1 && seen[r.Header.Get("Idempotency-Key")] == 1
		mu.Unlock()
		if first {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(201)
	})
	r := start(t, p.URL, func(r *policy.Route) { r.UpstreamKey.Deduplicates = time.Hour }, nil)
	r.post(`"k"`, "x").is(t, 502, codeUnknown, retryAfterResolution)
	r.post("k", "x").ok(t, 201)
	mu.Lock()
	defer mu.Unlock()
	if seen["k"] != 2 || len(seen) != 1 {
		t.Errorf("the upstream saw %v", seen)
	}
}

// TestAResendOfASilentOwnersSendIsMarked: where a proxy died after its mark, the
// record still says DISPATCHED. A resend is an attempt of its own all the same: it
// is marked before it leaves, under its lease, and its answer settles the doubt.
func TestAResendOfASilentOwnersSendIsMarked(t *testing.T) {
	fake := storetest.NewFake()
	entered, release := make(chan int, 3), make(chan bool)
	p := newProvider(t, nil)
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rep, err := fake.Get(r.Context(), keystore.ID{Scope: "default", Key: "k"})
		if err != nil {
			t.Error(err)
		}
		entered <- rep.Record.Attempt
		<-release
		if rep.Record.Attempt == 1 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, "the same effect")
	})
	dies := start(t, p.URL, recognises, func(c *Config) { c.Ledger, c.Instance = fake, "dies" })
	r := start(t, p.URL, recognises, func(c *Config) { c.Ledger = fake })
	lost, done := make(chan got, 1), make(chan got, 1)
	go func() { lost <- dies.post("k", "x") }()
	<-entered
	fake.Advance(time.Hour - time.Minute)
	r.post("k", "x", "Fencepost-Lease", `"run";token=3`).is(t, 412, codeLeaseStale, retryNever)
	go func() { done <- r.post("k", "x") }()
	if n := <-entered; n != 2 {
		t.Errorf("attempt %d is in the ledger while the second one is under way", n)
	}
	r.post("k", "x").is(t, 409, codeInFlight, retrySameKey)
	close(release)
	(<-done).ok(t, 200, "the same effect")
	<-lost
	if d := r.lookup("k"); d.State != keystore.Completed || d.Attempt != 2 {
		t.Errorf("%+v", d)
	}
}

// TestARefusalOfTheRepetitionIsNotTheOutcome: a gate in front of the upstream's memory
// (a withdrawn permission, a moved path, a stricter check) knows nothing of the first
// send. A caller that is told "refused" pays again under a new key.
func TestARefusalOfTheRepetitionIsNotTheOutcome(t *testing.T) {
	for _, status := range []int{400, 403, 404, 409, 422} {
		u := newRememberer(t, func(w http.ResponseWriter) { w.WriteHeader(status) })
		r := start(t, u.URL, recognises, nil)
		r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
		if g := r.post("k", "x"); g.status != status || g.header.Get("Fencepost-State") != "unknown" {
			t.Errorf("%d: %+v", status, g)
		}
		r.reads("k", keystore.Unknown)
	}
}

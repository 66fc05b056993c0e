package proxy

import (
	"fmt"
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

func TestARequestWithoutAKeyGetsADerivedOne(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.Key.Missing, r.Key.Window = policy.MissingDerive, 10*time.Minute }, func(c *Config) { c.Ledger = fake })
	first := r.call("POST", "/v1/charges", "x")
	first.ok(t, 201)
	key := first.header.Get("Idempotency-Key")
	if !strings.HasPrefix(key, "derived-") || first.header.Get("Fencepost-Derived-Key") != "true" {
		t.Errorf("%v", first.header)
	}
	again := r.call("POST", "/v1/charges", "x")
	again.ok(t, 201, first.body)
	if again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Fencepost-Derived-Key") != "true" {
		t.Errorf("%v", again.header)
	}
	if d := r.lookup(key); !d.Derived || d.State != keystore.Completed {
		t.Errorf("%+v", d)
	}
	p.counted("", 1) // the derived key stays here
	// Another payload, another target, another lease run: other requests.
	r.call("POST", "/v1/charges", "y").ok(t, 201)
	r.call("POST", "/v1/refunds", "x").ok(t, 201)
	lease(t, r.call("POST", leasePath, `{"owner":"w"}`), 201)
	r.call("POST", "/v1/charges", "x", "Fencepost-Lease", `"run-1";token=1`).ok(t, 201)
	p.counted("", 4)
	// A key of the caller's own is its own.
	r.post("k", "x").ok(t, 201)
	p.counted("k", 1)
	// After the window it is a new request, swept or not.
	for range 2 {
		fake.Advance(11 * time.Minute)
		r.call("POST", "/v1/charges", "x").ok(t, 201)
		r.call("POST", "/v1/charges", "x").ok(t, 201)
		fake.Advance(11 * time.Minute)
		if err := r.proxy.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.counted("", 6)
	r.call("POST", "/v1/charges", "x", "Idempotency-Key", "").is(t, 400, codeKeyInvalid, retryNewKey)
}

func TestADoubtUnderADerivedKeyOutlivesItsWindow(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	r := start(t, p.URL, func(r *policy.Route) { r.Key.Missing, r.Key.Window = policy.MissingDerive, time.Minute }, func(c *Config) { c.Ledger = fake })
	r.call("POST", "/", "x").ok(t, 500)
	fake.Advance(time.Hour)
	r.call("POST", "/", "x").is(t, 409, codeUnknown, retryAfterResolution)
	p.counted("", 1)
}

func TestTheSamePayloadUnderANewKey(t *testing.T) {
	fake := storetest.NewFake()
	var status atomic.Int32
	status.Store(201)
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })
	r := start(t, p.URL, func(r *policy.Route) { r.SamePayload = policy.SamePayloadRule{Reject: true, Window: 10 * time.Minute} }, func(c *Config) { c.Ledger = fake })
	r.post("k1", "x").ok(t, 201)
	g := r.post("k2", "x")
	g.is(t, 409, codeDuplicatePayload, retryAfterResolution)
	if g.prob.Lookup != lookupPath("k1") || g.prob.State != "completed" {
		t.Errorf("%s", g.body)
	}
	r.post("k1", "x").ok(t, 201) // its own key is a replay
	r.post("k3", "y").ok(t, 201) // another payload is another request
	r.post("k4", "x", "Fencepost-Allow-Duplicate", "true").ok(t, 201)
	p.counted("k1", 1)
	p.counted("k2", 0)
	p.counted("k4", 1)
	if p.headers["k4"].Get("Fencepost-Allow-Duplicate") != "" {
		t.Error("our field went upstream")
	}
	fake.Advance(11 * time.Minute)
	r.post("k5", "x").ok(t, 201)
	p.counted("k5", 1)
	// What was not applied, or abandoned, is no duplicate.
	status.Store(429)
	r.post("k6", "z").ok(t, 429)
	status.Store(500)
	r.post("k7", "z").ok(t, 500)
	r.post("k8", "z").is(t, 409, codeDuplicatePayload, retryAfterResolution)
	if w := r.resolve("k7", `{"as":"abandoned","reason":"r","actor":"a"}`); w.Code != 200 {
		t.Fatal(w.Body)
	}
	status.Store(201)
	r.post("k8", "z").ok(t, 201)
	p.counted("k8", 1)
	if w := r.adminCall("/v1/operations?state=reserved"); strings.Contains(w.Body.String(), "payload ") {
		t.Errorf("notes are listed as operations: %s", w.Body)
	}
}

func TestOfManyKeysForOnePayloadOneIsSent(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.SamePayload = policy.SamePayloadRule{Reject: true, Window: time.Minute} }, nil)
	var wg sync.WaitGroup
	var sent, refused atomic.Int32
	for i := range 32 {
		wg.Go(func() {
			switch g := r.post(fmt.Sprint("k", i), "x"); {
			case g.status == 201:
				sent.Add(1)
			case g.prob.Code == codeDuplicatePayload:
				refused.Add(1)
			default:
				t.Errorf("%d %s", g.status, g.body)
			}
		})
	}
	wg.Wait()
	if sent.Load() != 1 || refused.Load() != 31 {
		t.Errorf("%d sent, %d refused", sent.Load(), refused.Load())
	}
}

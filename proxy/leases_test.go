package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
	"fencepost/policy"
)

const leasePath = apiPrefix + "v1/leases/run-1"

func lease(t *testing.T, g got, status int) leaseDocument {
	t.Helper()
	var d leaseDocument
	if g.status != status || json.Unmarshal([]byte(g.body), &d) != nil {
		t.Fatalf("got %d %s, want %d", g.status, g.body, status)
	}
	return d
}

func TestTheLifeOfALease(t *testing.T) {
	fake := storetest.NewFake()
	r := start(t, "http://127.0.0.1:1", nil, func(c *Config) { c.Ledger = fake })
	r.call("GET", leasePath, "").is(t, 404, codeNoLease, retryNever)
	one := lease(t, r.call("POST", leasePath, `{"owner":"w1","ttl":"30s"}`), 201)
	if one.Token != 1 || one.Owner != "w1" || one.Run != "run-1" || !one.Held || one.ExpiresAt.Sub(one.Now) != 30*time.Second {
		t.Errorf("%+v", one)
	}
	g := r.call("POST", leasePath, `{"owner":"w2","ttl":"30s"}`)
	g.is(t, 409, codeLeaseHeld, retrySameKey)
	if g.prob.ExpiresAt != one.ExpiresAt.String() || g.header.Get("Retry-After") != "30" {
		t.Errorf("%s %v", g.body, g.header)
	}
	fake.Advance(20 * time.Second)
	renewed := lease(t, r.call("PUT", leasePath, `{"token":1,"ttl":"30s"}`), 200)
	if renewed.ExpiresAt.Sub(one.ExpiresAt) != 20*time.Second || renewed.Token != 1 {
		t.Errorf("%+v", renewed)
	}
	r.call("PUT", leasePath, `{"token":2,"ttl":"30s"}`).is(t, 412, codeLeaseStale, retryNever)
	fake.Advance(31 * time.Second)
	r.call("PUT", leasePath, `{"token":1,"ttl":"30s"}`).is(t, 412, codeLeaseStale, retryNever)
	if two := lease(t, r.call("POST", leasePath, `{"owner":"w2"}`), 201); two.Token != 2 {
		t.Errorf("%+v", two)
	}
	r.call("DELETE", leasePath+"?token=1", "").is(t, 412, codeLeaseStale, retryNever)
	r.call("DELETE", leasePath+"?token=2", "").ok(t, 204)
	if shown := lease(t, r.call("GET", leasePath, ""), 200); shown.Held || shown.Token != 2 {
		t.Errorf("%+v", shown)
	}
	if three := lease(t, r.call("POST", leasePath, `{"owner":"w1"}`), 201); three.Token != 3 {
		t.Errorf("tokens must grow across release: %+v", three)
	}
	// Another run begins above all tokens of the scope, since its own earlier lease
	// may have been lost; a run may hold a slash.
	if other := lease(t, r.call("POST", apiPrefix+"v1/leases/a%2Fb", `{"owner":"w1"}`), 201); other.Token != 4 || other.Run != "a/b" {
		t.Errorf("%+v", other)
	}
	if again := lease(t, r.call("POST", apiPrefix+"v1/leases/c", `{"owner":"w1"}`), 201); again.Token != 5 {
		t.Errorf("%+v", again)
	}
	r.call("GET", apiPrefix+"v1/leases/highest%20token", "").is(t, 400, codeLeaseInvalid, retryNever)
	for _, bad := range []string{``, `{`, `{"ttl":"30s"}`, `{"owner":"w","ttl":"soon"}`, `{"owner":"w","ttl":"1ms"}`, `{"owner":"w","ttl":"48h"}`, `{"owner":"w","token":1}`, `{"owner":"w","unheard":1}`} {
		r.call("POST", apiPrefix+"v1/leases/x", bad).is(t, 400, codeLeaseInvalid, retryNever)
	}
	r.call("PUT", leasePath, `{"ttl":"30s"}`).is(t, 400, codeLeaseInvalid, retryNever)
	r.call("DELETE", leasePath, "").is(t, 400, codeLeaseInvalid, retryNever)
	r.call("PATCH", leasePath, "").is(t, 405, codeMethodNotAllowed, retryNever)
}

func TestOfManyAcquisitionsOneWins(t *testing.T) {
	r := start(t, "http://127.0.0.1:1", nil, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for i := range 32 {
		wg.Go(func() {
			g := r.call("POST", leasePath, fmt.Sprintf(`{"owner":"w%d"}`, i))
			mu.Lock()
			defer mu.Unlock()
			codes[g.status]++
		})
	}
	wg.Wait()
	if codes[201] != 1 || codes[409] != 31 {
		t.Errorf("%v", codes)
	}
}

// TestAStaleWorkerSendsNothing: token 1 pauses, token 2 acts, token 1 resumes.
func TestAStaleWorkerSendsNothing(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.Lease.Required = true }, func(c *Config) { c.Ledger = fake })
	r.post("k0", "x").is(t, 428, codeLeaseRequired, retrySameKey)
	held := func(token uint64) []string {
		return []string{"Fencepost-Lease", fmt.Sprintf(`"run-1";token=%d`, token)}
	}
	lease(t, r.call("POST", leasePath, `{"owner":"w1","ttl":"30s"}`), 201)
	r.post("k1", "x", held(1)...).ok(t, 201)
	fake.Advance(time.Minute)
	r.post("k2", "x", held(1)...).is(t, 412, codeLeaseStale, retryNever) // expired, though nobody took it
	lease(t, r.call("POST", leasePath, `{"owner":"w2","ttl":"30s"}`), 201)
	r.post("k2", "x", held(2)...).ok(t, 201)
	r.post("k3", "x", held(1)...).is(t, 412, codeLeaseStale, retryNever)
	// What is done it may still read.
	if g := r.post("k1", "x", held(1)...); g.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s", g.status, g.body)
	}
	for key, n := range map[string]int{"k0": 0, "k1": 1, "k2": 1, "k3": 0} {
		p.counted(key, n)
	}
	if d := r.lookup("k2"); d.Lease == nil || d.Lease.Token != 2 || d.Lease.Run != "run-1" {
		t.Errorf("%+v", d.Lease)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.headers["k1"].Get("Fencepost-Lease") != "" {
		t.Error("the lease went upstream")
	}
}

// TestALeaseLostBetweenClaimAndSendStopsTheSend: the guard is evaluated in the
// step that writes DISPATCHED.
func TestALeaseLostBetweenClaimAndSendStopsTheSend(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	lease(t, r.call("POST", leasePath, `{"owner":"w1","ttl":"10s"}`), 201)
	fake.SetFault(func(c storetest.Call) storetest.Fault {
		if c.State == keystore.Dispatched {
			fake.Advance(11 * time.Second)
		}
		return storetest.Fault{}
	})
	r.post("k", "x", "Fencepost-Lease", `"run-1";token=1`).is(t, 412, codeLeaseStale, retryNever)
	fake.SetFault(nil)
	p.counted("k", 0)
	r.reads("k", keystore.Reserved)
	lease(t, r.call("POST", leasePath, `{"owner":"w2","ttl":"10s"}`), 201)
	r.post("k", "x", "Fencepost-Lease", `"run-1";token=2`).ok(t, 201)
	p.counted("k", 1)
}

// TestAResultOfAnExpiredLeaseIsStillRecorded: the lease ended while the request
// was out; what happened, happened.
func TestAResultOfAnExpiredLeaseIsStillRecorded(t *testing.T) {
	fake := storetest.NewFake()
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		fake.Advance(20 * time.Second)
		io.WriteString(w, "done")
	})
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake })
	lease(t, r.call("POST", leasePath, `{"owner":"w1","ttl":"10s"}`), 201)
	r.post("k", "x", "Fencepost-Lease", `"run-1";token=1`).ok(t, 200, "done")
	r.reads("k", keystore.Completed)
}

func TestOfExternalTokensTheHighestSeenWins(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, func(r *policy.Route) { r.Lease = policy.LeaseRule{Required: true, External: true} }, nil)
	for i, c := range []struct {
		token  int
		status int
	}{{5, 201}, {5, 201}, {9, 201}, {8, 412}, {10, 201}, {9, 412}} {
		key := fmt.Sprint("k", i)
		g := r.post(key, "x", "Fencepost-Lease", fmt.Sprintf(`"run-1";token=%d`, c.token))
		if g.status != c.status {
			t.Errorf("token %d: %d %s", c.token, g.status, g.body)
		}
		p.counted(key, map[int]int{201: 1, 412: 0}[c.status])
	}
}

func TestALeaseBelongsToItsCaller(t *testing.T) {
	callers, err := policy.NewCallers([]policy.Caller{{Name: "alice", Token: "alice-token-0123456789"}, {Name: "bob", Token: "bob-token-0123456789ab"}})
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Rules.Callers = callers })
	alice, bob := []string{"Fencepost-Authorization", "Bearer alice-token-0123456789"}, []string{"Fencepost-Authorization", "Bearer bob-token-0123456789ab"}
	lease(t, r.call("POST", leasePath, `{"owner":"w1"}`, alice...), 201)
	r.call("GET", leasePath, "", bob...).is(t, 404, codeNoLease, retryNever)
	r.post("k", "x", append(bob, "Fencepost-Lease", `"run-1";token=1`)...).is(t, 412, codeLeaseStale, retryNever)
	r.post("k", "x", append(alice, "Fencepost-Lease", `"run-1";token=1`)...).ok(t, 201)
	if g := r.call("POST", leasePath, `{"owner":"w1"}`); g.status != 401 || strings.Contains(g.body, "alice") {
		t.Errorf("%d %s", g.status, g.body)
	}
}

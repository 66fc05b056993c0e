package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
	"fencepost/policy"
)

func (r *rig) adminCall(path string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.proxy.Admin().ServeHTTP(w, req)
	return w
}

func TestReadinessFollowsTheLedgerAndTheDrain(t *testing.T) {
	fake := storetest.NewFake()
	r := start(t, "http://127.0.0.1:1", nil, func(c *Config) { c.Ledger = fake })
	if w := r.adminCall("/readyz"); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	fake.SetFault(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: errors.New("away")} })
	if w := r.adminCall("/readyz"); w.Code != 503 || !strings.Contains(w.Body.String(), "away") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := r.adminCall("/healthz"); w.Code != 200 {
		t.Fatalf("healthz: %d", w.Code)
	}
	fake.SetFault(nil)
	r.proxy.NotReady()
	if w := r.adminCall("/readyz"); w.Code != 503 || !strings.Contains(w.Body.String(), "draining") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func TestTheAdminListenerRefusesBrowsers(t *testing.T) {
	r := start(t, "http://127.0.0.1:1", nil, nil)
	for name, h := range map[string][]string{
		"a rebound name":           {"Host", "evil.example"},
		"a rebound name, any port": {"Host", "evil.example:8081"},
		"another origin":           {"Origin", "http://evil.example"},
		"a null origin":            {"Origin", "null"},
	} {
		if w := r.adminCall("/metrics", h...); w.Code != 403 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	for _, host := range []string{"localhost:8081", "127.0.0.1", "[::1]:8081", "127.9.9.9:1"} {
		if w := r.adminCall("/metrics", "Host", host); w.Code != 200 {
			t.Errorf("%s: %d", host, w.Code)
		}
	}
}

func TestTheAdminTokenIsAskedFor(t *testing.T) {
	r := start(t, "http://127.0.0.1:1", nil, func(c *Config) { c.AdminToken = "admin-token-0123456789" })
	if w := r.adminCall("/metrics", "Host", "proxy.internal"); w.Code != 401 {
		t.Errorf("no token: %d", w.Code)
	}
	if w := r.adminCall("/metrics", "Authorization", "Bearer wrong-token-0123456789"); w.Code != 401 {
		t.Errorf("wrong token: %d", w.Code)
	}
	if w := r.adminCall("/metrics", "Host", "proxy.internal", "Authorization", "Bearer admin-token-0123456789"); w.Code != 200 {
		t.Errorf("right token: %d", w.Code)
	}
	if w := r.adminCall("/healthz"); w.Code != 200 {
		t.Errorf("healthz: %d", w.Code)
	}
}

func TestMetricsCountWhatWasDecided(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	r.post("k", "x")
	r.post("k", "x")
	r.post("k", "y")
	r.call("POST", "/", "x")
	r.call("GET", "/", "")
	body := r.adminCall("/metrics").Body.String()
	for _, line := range []string{
		`fencepost_governed_total{answer="sent",state="completed"} 1`,
		`fencepost_governed_total{answer="replayed",state="completed"} 1`,
		`fencepost_governed_total{answer="idempotency_conflict",state="completed"} 1`,
		`fencepost_governed_total{answer="idempotency_key_required",state="none"} 1`,
		`fencepost_passed_total 1`,
		`fencepost_ledger_seconds_count{call="insert"} 3`,
		`fencepost_pending_events 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("missing %s in\n%s", line, body)
		}
	}
}

func TestADrainFinishesWhatIsUnderWay(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release; io.WriteString(w, "done") })
	r := start(t, p.URL, nil, nil)
	done := make(chan got, 1)
	go func() { done <- r.post("k", "x") }()
	p.await("k")
	over := make(chan error, 1)
	go func() { over <- r.proxy.Shutdown(context.Background()) }()
	for !r.proxy.draining() {
		time.Sleep(time.Millisecond)
	}
	r.post("new", "x").is(t, 503, codeShuttingDown, retrySameKey)
	p.counted("new", 0)
	close(release)
	(<-done).ok(t, 200, "done")
	if err := <-over; err != nil {
		t.Error(err)
	}
	r.reads("k", keystore.Completed)
}

func TestADrainThatRunsOutOfTimeLeavesUnknown(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	r := start(t, p.URL, nil, nil)
	done := make(chan got, 1)
	go func() { done <- r.post("k", "x") }()
	p.await("k")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.proxy.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 effects were cut off") {
		t.Errorf("%v", err)
	}
	g := <-done
	g.is(t, 502, codeUnknown, retryAfterResolution)
	r.reads("k", keystore.Unknown)
	rep, _ := r.store.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if rep.Record.State != keystore.Unknown {
		t.Errorf("stored %v: others would have to wait for the deadline", rep.Record.State)
	}
	p.counted("k", 1)
}

func TestAReloadChangesTheRulesOfNewRequestsOnly(t *testing.T) {
	one, two := newProvider(t, nil), newProvider(t, nil)
	r := start(t, one.URL, nil, nil)
	r.post("k1", "x").ok(t, 201)
	if err := r.proxy.Reload(Rules{}); err == nil {
		t.Error("a reload without routes was taken")
	}
	r.post("k2", "x").ok(t, 201)
	one.counted("k2", 1)
	err := r.proxy.Reload(Rules{Routes: table(t, policy.Route{Name: "all", Upstream: mustURL(t, two.URL), Enforce: true})})
	if err != nil {
		t.Fatal(err)
	}
	r.post("k3", "x").ok(t, 201)
	two.counted("k3", 1)
	// An old key under another upstream is another target.
	r.post("k1", "x").is(t, 422, codeConflict, retryNewKey)
	two.counted("k1", 0)
}

func TestTheLogHasOneLineAGovernedRequest(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	g := r.post("k", "x")
	r.post("k", "x")
	lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines:\n%s", len(lines), r.log)
	}
	for _, want := range []string{`"msg":"governed"`, `"scope":"default"`, `"key":"k"`, fmt.Sprintf(`"operation":%q`, g.header.Get("Fencepost-Operation")), `"route":"all"`, `"before":"none"`, `"after":"completed"`, `"attempt":1`, `"version":3`, `"decision":"reserve:final"`, `"status":201`, `"ledger_ms":`, `"upstream_ms":`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%s is missing in %s", want, lines[0])
		}
	}
	if !strings.Contains(lines[1], `"decision":"replay"`) || !strings.Contains(lines[1], `"before":"completed"`) {
		t.Errorf("%s", lines[1])
	}
}

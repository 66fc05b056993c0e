package proxy

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
)

func sealing(t *testing.T, keys ...keystore.SealKey) *keystore.Vault {
	t.Helper()
	v, err := keystore.NewVault(keystore.VaultOptions{Keys: keys, CompressFrom: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestResponsesRestSealedAndReplayWhole: whatever way an outcome became known, its
// response is sealed in the ledger and the caller's own when it is asked for.
func TestResponsesRestSealedAndReplayWhole(t *testing.T) {
	old := keystore.SealKey{ID: "old", Key: bytes.Repeat([]byte("o"), 32)}
	fresh := keystore.SealKey{ID: "new", Key: bytes.Repeat([]byte("n"), 32)}
	secret := strings.Repeat("CARDNUMBER ", 1000)
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/CARDNUMBER")
		if r.Header.Get("Idempotency-Key") == "doubtful" {
			w.WriteHeader(500)
		}
		w.Write([]byte(secret))
	})
	fake := storetest.NewTickingFake()
	r := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.Vault = sealing(t, old) })
	r.post("k", "x").ok(t, 200, secret)
	r.post("doubtful", "x").ok(t, 500, secret)
	r.post("resolved", "x").ok(t, 200)

	for _, key := range []string{"k", "doubtful"} {
		rep, err := fake.Get(t.Context(), keystore.ID{Scope: "default", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		if lies := append(keystore.Encode(&rep.Record), rep.Body...); bytes.Contains(lies, []byte("CARDNUMBER")) || len(lies) > len(secret)/2 {
			t.Errorf("%s: in the ledger lie %d bytes, and they can be read: %v", key, len(lies), bytes.Contains(lies, []byte("CARDNUMBER")))
		}
	}
	check := func(r *rig) {
		t.Helper()
		g := r.post("k", "x")
		if g.ok(t, 200, secret); g.header.Get("Location") != "/CARDNUMBER" || g.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%v", g.header)
		}
		r.call("GET", lookupPath("k")+"/response", "").ok(t, 200, secret)
		if d := r.lookup("k"); len(d.Outcome.BodySHA256) != 64 || d.Outcome.BodySize != int64(len(secret)) {
			t.Errorf("%+v", d.Outcome)
		}
	}
	check(r)
	// The next proxy has a new key and still opens with the old one.
	check(start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.Vault = sealing(t, fresh, old) }))

	// One without it says what is known, sends nothing, and loses nothing.
	lost := start(t, p.URL, nil, func(c *Config) { c.Ledger = fake; c.Vault = sealing(t, fresh) })
	g := lost.post("k", "x")
	g.is(t, 503, codeSealed, retrySameKey)
	if g.prob.OriginalStatus != 200 || g.header.Get("Retry-After") == "" || !strings.Contains(g.prob.Detail, `key "old"`) {
		t.Errorf("%s", g.body)
	}
	lost.call("GET", lookupPath("k")+"/response", "").is(t, 503, codeSealed, retrySameKey)
	lost.reads("k", keystore.Completed)
	lost.post("k", "other").is(t, 422, codeConflict, retryNewKey)
	check(r)
	p.counted("k", 1)
}

// TestWhatAnOperatorRecordsIsSealedToo: it may hold as much as an answer.
func TestWhatAnOperatorRecordsIsSealedToo(t *testing.T) {
	p := newProvider(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	fake := storetest.NewTickingFake()
	r := start(t, p.URL, nil, func(c *Config) {
		c.Ledger = fake
		c.Vault = sealing(t, keystore.SealKey{ID: "a", Key: make([]byte, 32)})
	})
	r.post("k", "x").is(t, 502, codeUnknown, retryAfterResolution)
	if w := r.resolve("k", `{"as":"completed","reason":"seen in the bank's console","actor":"a","status":201,"body":"Q0FSRE5VTUJFUg==","header":{"Content-Type":"text/plain"}}`); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	r.post("k", "x").ok(t, 201, "CARDNUMBER")
	rep, err := fake.Get(t.Context(), keystore.ID{Scope: "default", Key: "k"})
	if err != nil || bytes.Contains(append(keystore.Encode(&rep.Record), rep.Body...), []byte("CARDNUMBER")) {
		t.Errorf("it can be read in the ledger: %v", err)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// chat is a fake of Slack: what is posted to it, and what it says about it.
type chat struct {
	*httptest.Server
	mu       sync.Mutex
	asked    map[string]int // by text
	messages []json.RawMessage
	fields   []http.Header
}

func newChat(t *testing.T) *chat {
	c := &chat{asked: map[string]int{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *chat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/api/conversations.history" {
		if r.URL.Query().Get("channel") != "C1" || r.URL.Query().Get("include_all_metadata") != "true" || r.Header.Get("Authorization") != "Bearer lookup" {
			fmt.Fprint(w, `{"ok":false,"error":"channel_not_found"}`)
			return
		}
		list, _ := json.Marshal(c.messages)
		fmt.Fprintf(w, `{"ok":true,"messages":%s}`, list)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m struct {
		Text     string
		Metadata json.RawMessage
	}
	_ = json.Unmarshal(body, &m)
	c.asked[m.Text]++
	c.fields = append(c.fields, r.Header.Clone())
	refuse := func(code string) { fmt.Fprintf(w, `{"ok":false,"error":%q}`, code) }
	what, _, _ := strings.Cut(m.Text, " ")
	switch {
	case what == "limited" && c.asked[m.Text] == 1:
		refuse("ratelimited")
		return
	case what == "broken":
		refuse("internal_error")
		return
	case what == "nowhere":
		refuse("channel_not_found")
		return
	}
	ts := fmt.Sprintf("%d.0", len(c.messages)+1)
	c.messages = append(c.messages, json.RawMessage(fmt.Sprintf(`{"text":%q,"ts":%q,"metadata":%s}`, m.Text, ts, m.Metadata)))
	if what == "half" {
		refuse("internal_error") // and the message is there
		return
	}
	fmt.Fprintf(w, `{"ok":true,"channel":"C1","ts":%q}`, ts)
}

// seen returns how often a text was sent here, and how many messages there are of it.
func (c *chat) seen(text string) (asked, messages int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.messages {
		if strings.Contains(string(m), fmt.Sprintf(`"text":%q`, text)) {
			messages++
		}
	}
	return c.asked[text], messages
}

// till is a fake of PayPal: it keeps each result under its PayPal-Request-Id.
type till struct {
	*httptest.Server
	mu       sync.Mutex
	captures map[string]int // by order
	results  map[string]string
	asked    map[string]int // by order
	fields   []http.Header
	// lose drops the first answer about an order; busy answers a repetition once with 409.
	lose, busy map[string]bool
}

func newTill(t *testing.T) *till {
	p := &till{captures: map[string]int{}, results: map[string]string{}, asked: map[string]int{}, lose: map[string]bool{}, busy: map[string]bool{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() { p.CloseClientConnections(); p.Close() })
	return p
}

func (p *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	order := strings.Split(r.URL.Path, "/")[4]
	p.asked[order]++
	p.fields = append(p.fields, r.Header.Clone())
	id := r.Header.Get("PayPal-Request-Id")
	w.Header().Set("Content-Type", "application/json")
	if result, known := p.results[id]; known {
		if p.busy[order] {
			p.busy[order] = false
			w.WriteHeader(409)
			fmt.Fprint(w, `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`)
			return
		}
		fmt.Fprint(w, result) // 200: it is known
		return
	}
	p.captures[order]++
	p.results[id] = fmt.Sprintf(`{"id":%q,"status":"COMPLETED","capture":%d}`, order, p.captures[order])
	if p.lose[order] {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(201)
	fmt.Fprint(w, p.results[id])
}

// TestProfilesInFrontOfTheirProviders: the profile's rules, fields and keys, with
// real processes and nothing else configured but what docs/providers.md tells to.
func TestProfilesInFrontOfTheirProviders(t *testing.T) {
	slack, paypal := newChat(t), newTill(t)
	file := filepath.Join(t.TempDir(), "fencepost.yaml")
	text := fmt.Sprintf(`
listen: 127.0.0.1:0
admin: {listen: '127.0.0.1:0'}
ledger: {url: 'sqlite://%s'}
routes:
  - name: messages
    profile: slack
    match: {path: /api/chat.postMessage}
    upstream: %[2]s
    capture: {channel: "request.json.channel"}
    reconcile:
      lookup:
        url: "%[2]s/api/conversations.history?channel={captured.channel}&include_all_metadata=true&limit=100"
        headers: {Authorization: "Bearer lookup"}
      confirmed: "lookup.status == 200 && lookup.json.ok == true && lookup.json.messages.filter(m, has(m.metadata) && has(m.metadata.event_payload) && has(m.metadata.event_payload.operation) && m.metadata.event_payload.operation == operation.key).size() == 1"
      complete: false
      response: {status: 200, json: "{'ok': true, 'channel': operation.captured.channel, 'ts': lookup.json.messages.filter(m, has(m.metadata) && has(m.metadata.event_payload) && has(m.metadata.event_payload.operation) && m.metadata.event_payload.operation == operation.key)[0].ts}"}
  - name: orders
    profile: paypal
    match: {path: /v2/checkout/orders}
    upstream: %[3]s
    upstream_key: {deduplicates_for: 5h}
`, filepath.Join(t.TempDir(), "l.db"), slack.URL, paypal.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, nil, "serve", "--config", file)
	if !strings.Contains(p.logged(), `"profiles":"messages (slack), orders (paypal)"`) {
		t.Errorf("the log does not name the profiles:\n%s", p.logged())
	}

	say := func(key, text string) reply {
		body := fmt.Sprintf(`{"channel":"C1","text":%q,"metadata":{"event_type":"operation","event_payload":{"operation":%q}}}`, text, key)
		return send("POST", p.url+"/api/chat.postMessage", key, body)
	}
	is := func(r reply, status int, state, body string) {
		t.Helper()
		if r.err != nil || r.status != status || r.header.Get("Fencepost-State") != state || body != "" && r.body != body {
			t.Errorf("%+v, want %d %s %s", r, status, state, body)
		}
	}
	sent := func(text string, asked, messages int) {
		t.Helper()
		if a, m := slack.seen(text); a != asked || m != messages {
			t.Errorf("%q was sent %d times and is there %d times, want %d and %d", text, a, m, asked, messages)
		}
	}

	// A success and a refusal are recorded and replayed.
	is(say("k1", "hello"), 200, "completed", `{"ok":true,"channel":"C1","ts":"1.0"}`)
	is(say("k1", "hello"), 200, "completed", `{"ok":true,"channel":"C1","ts":"1.0"}`)
	sent("hello", 1, 1)
	is(say("k2", "nowhere to go"), 200, "completed", `{"ok":false,"error":"channel_not_found"}`)
	is(say("k2", "nowhere to go"), 200, "completed", `{"ok":false,"error":"channel_not_found"}`)
	sent("nowhere to go", 1, 0)
	// The rate limiter took nothing: the same key may try again.
	is(say("k3", "limited at first"), 200, "reserved", `{"ok":false,"error":"ratelimited"}`)
	is(say("k3", "limited at first"), 200, "completed", `{"ok":true,"channel":"C1","ts":"2.0"}`)
	sent("limited at first", 2, 1)
	// An internal error leaves it open. The lookup finds what was done, and does not
	// take what it does not find for proof.
	is(say("k4", "half done"), 200, "unknown", `{"ok":false,"error":"internal_error"}`)
	is(say("k4", "half done"), 200, "completed", `{"channel":"C1","ok":true,"ts":"3.0"}`)
	sent("half done", 1, 1)
	is(say("k5", "broken"), 200, "unknown", `{"ok":false,"error":"internal_error"}`)
	for range 2 {
		if r := say("k5", "broken"); r.status != 409 || r.code() != "outcome_unknown" {
			t.Errorf("%+v", r)
		}
	}
	sent("broken", 1, 0)

	capture := func(key, order string) reply {
		req, err := http.NewRequest("POST", p.url+"/v2/checkout/orders/"+order+"/capture", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.GetBody = nil
		if key != "" {
			req.Header.Set("PayPal-Request-Id", key)
		}
		resp, err := testClient.Do(req)
		if err != nil {
			return reply{err: err}
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return reply{resp.StatusCode, resp.Header, string(body), err}
	}
	captured := func(order string, asked int) {
		t.Helper()
		paypal.mu.Lock()
		defer paypal.mu.Unlock()
		if paypal.captures[order] != 1 || paypal.asked[order] != asked {
			t.Errorf("order %s: asked %d times, captured %d times, want %d and 1", order, paypal.asked[order], paypal.captures[order], asked)
		}
	}
	paypal.mu.Lock()
	paypal.lose["O2"], paypal.lose["O3"], paypal.busy["O3"] = true, true, true
	paypal.mu.Unlock()

	is(capture("c1", "O1"), 201, "completed", `{"id":"O1","status":"COMPLETED","capture":1}`)
	is(capture(`"c1"`, "O1"), 201, "completed", `{"id":"O1","status":"COMPLETED","capture":1}`)
	captured("O1", 1)
	// A lost answer is fetched with the same key, and counts once.
	if r := capture("c2", "O2"); r.status != 502 || r.code() != "outcome_unknown" {
		t.Errorf("%+v", r)
	}
	is(capture(`"c2"`, "O2"), 200, "completed", `{"id":"O2","status":"COMPLETED","capture":1}`)
	captured("O2", 2)
	// "In progress" about the first send is no outcome of it.
	capture("c3", "O3")
	is(capture("c3", "O3"), 409, "unknown", "")
	is(capture("c3", "O3"), 200, "completed", `{"id":"O3","status":"COMPLETED","capture":1}`)
	captured("O3", 3)
	// PayPal's field is the key's: without it nothing is sent.
	if r := capture("", "O4"); r.status != 400 || r.code() != "idempotency_key_required" {
		t.Errorf("%+v", r)
	}

	slack.mu.Lock()
	defer slack.mu.Unlock()
	for _, h := range slack.fields {
		if h.Get("Idempotency-Key") != "" || h.Get("Accept-Encoding") != "identity" {
			t.Errorf("Slack got %v", h)
		}
	}
	paypal.mu.Lock()
	defer paypal.mu.Unlock()
	for _, h := range paypal.fields {
		if id := h.Values("PayPal-Request-Id"); len(id) != 1 || !strings.HasPrefix(id[0], "fp-") || len(id[0]) > 38 || h.Get("Idempotency-Key") != "" {
			t.Errorf("PayPal got %v", h)
		}
	}
}

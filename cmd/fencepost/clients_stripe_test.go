package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestStripeSDK runs the Stripe SDK against stripe-mock through Fencepost.
func TestStripeSDK(t *testing.T) {
	t.Parallel()
	stripeModules(t)
	server := startStripeMock(t)
	type law struct {
		name string
		test func(*testing.T, string)
	}
	together(t, []law{
		{"works through fencepost", stripeWorksThroughFencepost},
		{"makes keys of its own", stripeMakesKeysOfItsOwn},
		{"shows an error for a key of another call", stripeShowsAnErrorForAKeyOfAnotherCall},
		{"shows an error for a lost answer", stripeShowsAnErrorForALostAnswer},
		{"outlives the proxy", stripeOutlivesTheProxy},
		{"gets past a rate limit", stripeGetsPastARateLimit},
		{"waits for its duplicate", stripeWaitsForItsDuplicate},
		{"gets the true answer after it gave up", stripeGetsTheTrueAnswerAfterItGaveUp},
	}, func(l law) string { return l.name }, func(t *testing.T, _ int, l law) { l.test(t, server) })
}

func stripeCreate(resource string, params map[string]any, key string) stripeCall {
	args := []any{params}
	if key != "" {
		args = append(args, map[string]any{"idempotencyKey": key})
	}
	return stripeCall{resource, "create", args}
}

// stripeRefused fails the test unless the SDK threw an error of this status, 0 for
// none, and with this code of Fencepost's problem.
func stripeRefused(t *testing.T, e stripeEnd, status int, code string) {
	t.Helper()
	if e.Error == nil {
		t.Errorf("the SDK takes an error for success: it resolved with a %v", e)
		return
	}
	if e.Error.StatusCode != status || e.Error.Code != code || e.Error.Message == "" {
		t.Errorf("the SDK threw %v, want status %d, code %q and a message", e, status, code)
	}
	t.Logf("the SDK threw %v", e)
}

// stripeWorksThroughFencepost as it works without.
func stripeWorksThroughFencepost(t *testing.T, server string) {
	g := newGateway(t, server)
	p := frontOf(t, g, "")
	for _, retries := range []int{0, 3} {
		t.Run(fmt.Sprintf("with maxNetworkRetries %d", retries), func(t *testing.T) {
			customer, payment := fmt.Sprint("customer-", retries), fmt.Sprint("payment-", retries)
			jane := stripeCreate("customers", map[string]any{"email": "jane@example.com", "metadata": map[string]any{"order": "6735"}}, customer)
			pay := stripeCreate("paymentIntents", map[string]any{"amount": 2000, "currency": "usd", "payment_method_types": []any{"card"}}, payment)
			get := stripeCall{"customers", "retrieve", []any{"cus_123"}}
			ends := stripeCalls(t, p.url, retries, jane, pay, jane, pay, get, get)
			for i, e := range ends {
				if e.Error != nil || e.Status != 200 || e.Value["id"] == nil {
					t.Errorf("call %d: %v", i+1, e)
				}
				want := []any{nil, nil, "true", "true", nil, nil}[i]
				if got := e.Headers["idempotent-replayed"]; got != want {
					t.Errorf("call %d has Idempotent-Replayed: %v", i+1, got)
				}
			}
			if ends[0].Value["object"] != "customer" || ends[1].Value["object"] != "payment_intent" {
				t.Errorf("%v %v", ends[0], ends[1])
			}
			if !reflect.DeepEqual(ends[0].Value, ends[2].Value) || !reflect.DeepEqual(ends[1].Value, ends[3].Value) {
				t.Error("a replay differs")
			}
			g.once(t, customer)
			g.once(t, payment)
		})
	}
	if n := g.of("").attempts; n != 4 {
		t.Errorf("%d of 4 reads went through", n)
	}
}

// stripeMakesKeysOfItsOwn, also without retries, so a route may require
// them. The key of one call is one key through all its retries.
func stripeMakesKeysOfItsOwn(t *testing.T, server string) {
	g := newGateway(t, server)
	p := frontOf(t, g, "")
	for _, retries := range []int{0, 2} {
		for i, e := range stripeCalls(t, p.url, retries, stripeCreate("customers", map[string]any{"name": "a"}, ""), stripeCreate("customers", map[string]any{"name": "a"}, "")) {
			if e.Error != nil || e.Status != 200 {
				t.Errorf("maxNetworkRetries %d, call %d: %v", retries, i+1, e)
			}
		}
	}
	keys := g.keys()
	for _, k := range keys {
		g.once(t, k)
		if !strings.HasPrefix(k, "stripe-node-retry-") || p.state(k) != "completed" {
			t.Errorf("%q reads %s", k, p.state(k))
		}
	}
	if len(keys) != 4 {
		t.Errorf("%d keys for 4 calls: %v", len(keys), keys)
	}
}

// stripeShowsAnErrorForAKeyOfAnotherCall.
func stripeShowsAnErrorForAKeyOfAnotherCall(t *testing.T, server string) {
	g := newGateway(t, server)
	p := frontOf(t, g, "")
	for _, retries := range []int{0, 3} {
		key := fmt.Sprint("k", retries)
		ends := stripeCalls(t, p.url, retries,
			stripeCreate("customers", map[string]any{"email": "jane@example.com"}, key),
			stripeCreate("customers", map[string]any{"email": "john@example.com"}, key),
			stripeCreate("customers", map[string]any{"email": "jane@example.com"}, key))
		if ends[0].Error != nil || ends[2].Error != nil {
			t.Errorf("%v, %v", ends[0], ends[2])
		}
		stripeRefused(t, ends[1], 422, "idempotency_conflict")
		g.once(t, key)
	}
}

// stripeShowsAnErrorForALostAnswer, and does not send twice, whatever it retries.
func stripeShowsAnErrorForALostAnswer(t *testing.T, server string) {
	g := newGateway(t, server)
	p := frontOf(t, g, ", timeout: 1s")
	together(t, []int{0, 3}, func(n int) string { return fmt.Sprint("maxNetworkRetries ", n) }, func(t *testing.T, _, retries int) {
		var calls []stripeCall
		for n, l := range losses {
			key := fmt.Sprintf("lost-%d-%d", retries, n)
			g.loses(key, l.fault)
			calls = append(calls, stripeCreate("paymentIntents", map[string]any{"amount": 2000, "currency": "usd"}, key))
		}
		for n, e := range (stripeSDK{Retries: retries, Timeout: 20000, AtOnce: true, Calls: calls}).run(t, p.url) {
			t.Run(losses[n].name, func(t *testing.T) {
				key := fmt.Sprintf("lost-%d-%d", retries, n)
				g.once(t, key)
				if s := p.state(key); s != "unknown" {
					t.Errorf("it reads %s", s)
				}
				status, code := 409, "outcome_unknown"
				switch {
				case losses[n].name == "half a stream":
					status, code = 0, "" // the SDK does not retry what breaks in the body
				case retries > 0:
				case losses[n].name == "a bad gateway":
					status, code = 0, "" // the upstream's own page is no JSON to the SDK
				case losses[n].name == "no answer":
					status = 504
				default:
					status = 502
				}
				stripeRefused(t, e, status, code)
			})
		}
	})
}

// stripeOutlivesTheProxy, and there is one effect.
func stripeOutlivesTheProxy(t *testing.T, server string) {
	g := newGateway(t, server)
	for i, s := range restarts {
		t.Run(s.law, func(t *testing.T) {
			key := fmt.Sprint("killed-", i)
			var e stripeEnd
			p := killed(t, g, s.at, key, func(url string) {
				e = stripeCalls(t, url, 4, stripeCall{"customers", "retrieve", []any{"cus_123"}}, stripeCreate("customers", map[string]any{"email": "jane@example.com"}, key))[1]
			})
			g.once(t, key)
			if got := p.state(key); got != s.state {
				t.Errorf("it reads %s, want %s", got, s.state)
			}
			if s.status == 409 {
				stripeRefused(t, e, 409, "outcome_unknown")
			} else if e.Error != nil || e.Value["object"] != "customer" {
				t.Errorf("the SDK ended with a %v", e)
			}
		})
	}
}

// stripeGetsPastARateLimit that asks for a retry as Stripe's do.
func stripeGetsPastARateLimit(t *testing.T, server string) {
	g := newGateway(t, server)
	p := frontOf(t, g, "")
	g.loses("k", refusing)
	e := stripeCalls(t, p.url, 3, stripeCreate("customers", map[string]any{"email": "jane@example.com"}, "k"))[0]
	if e.Error != nil || e.Status != 200 || e.Value["object"] != "customer" {
		t.Errorf("%v", e)
	}
	if seen := g.of("k"); seen.attempts != 2 || seen.effects != 1 {
		t.Errorf("%d attempts and %d effects, want 2 and 1", seen.attempts, seen.effects)
	}
}

// slowly lets a request take effect at once and answers it two seconds later.
func slowly(h *gatewayHop) {
	resp, b := h.forward()
	time.Sleep(2 * time.Second)
	h.w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	h.w.Write(b)
}

// stripeWaitsForItsDuplicate: it retries the 409 of a call in flight, and shows
// an error where it may not.
func stripeWaitsForItsDuplicate(t *testing.T, server string) {
	g := newGateway(t, server)
	p := frontOf(t, g, "")
	together(t, []int{0, 4}, func(n int) string { return fmt.Sprint("maxNetworkRetries ", n) }, func(t *testing.T, _, retries int) {
		key := fmt.Sprint("twice-", retries)
		g.loses(key, slowly)
		create := stripeCreate("customers", map[string]any{"email": "jane@example.com"}, key)
		ends := stripeSDK{Retries: retries, Timeout: 20000, AtOnce: true, Calls: []stripeCall{create, create}}.run(t, p.url)
		g.once(t, key)
		if ends[0].Headers["fencepost-state"] != "completed" {
			ends[0], ends[1] = ends[1], ends[0] // the second came first
		}
		if ends[0].Error != nil || ends[0].Value["object"] != "customer" {
			t.Errorf("%v", ends[0])
		}
		if retries == 0 {
			stripeRefused(t, ends[1], 409, "idempotency_in_flight")
		} else if !reflect.DeepEqual(ends[0].Value, ends[1].Value) {
			t.Errorf("%v", ends[1])
		}
	})
}

// stripeGetsTheTrueAnswerAfterItGaveUp: its own timeout ends before the answer
// comes, and its retry gets that answer.
func stripeGetsTheTrueAnswerAfterItGaveUp(t *testing.T, server string) {
	g := newGateway(t, server)
	p := frontOf(t, g, "")
	g.loses("k", slowly)
	e := stripeSDK{Retries: 5, Timeout: 1000, Calls: []stripeCall{stripeCreate("customers", map[string]any{"email": "jane@example.com"}, "k")}}.run(t, p.url)[0]
	g.once(t, "k")
	if e.Error != nil || e.Value["object"] != "customer" || e.Headers["idempotent-replayed"] != "true" {
		t.Errorf("%v", e)
	}
}

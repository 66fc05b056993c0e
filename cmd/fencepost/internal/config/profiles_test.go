package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fencepost/policy"
)

// profiled loads a configuration of one route that starts from a profile.
func profiled(t *testing.T, name, keys string) (*Config, *policy.Route) {
	t.Helper()
	c, err := Parse("f", []byte("routes:\n- name: r\n  upstream: https://api.example.com\n  profile: "+name+"\n"+keys), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	table, _, err := c.PolicyRoutes()
	if err != nil {
		t.Fatal(err)
	}
	return c, table.Routes()[0]
}

// TestEachProfileIsWhatItSays: the keys that decide over a second send, by hand.
func TestEachProfileIsWhatItSays(t *testing.T) {
	type says struct {
		header, upstream string
		send             policy.UpstreamKeySend
		recognised       time.Duration
		methods, counts  []string
		rules            int
	}
	post := []string{"POST"}
	want := map[string]says{
		"adyen":    {"Idempotency-Key", "Idempotency-Key", policy.SendDerived, 7*24*time.Hour - time.Hour, post, nil, 3},
		"github":   {"Idempotency-Key", "Idempotency-Key", policy.SendNone, 0, nil, nil, 4},
		"paypal":   {"Paypal-Request-Id", "Paypal-Request-Id", policy.SendDerived, 0, post, nil, 1},
		"sendgrid": {"Idempotency-Key", "Idempotency-Key", policy.SendNone, 0, nil, []string{"On-Behalf-Of"}, 0},
		"shopify":  {"Idempotency-Key", "Idempotency-Key", policy.SendNone, 0, nil, nil, 4},
		"slack":    {"Idempotency-Key", "Idempotency-Key", policy.SendNone, 0, nil, nil, 4},
		"stripe":   {"Idempotency-Key", "Idempotency-Key", policy.SendDerived, 23 * time.Hour, post, []string{"Stripe-Account", "Stripe-Context"}, 4},
		"twilio":   {"Idempotency-Key", "Idempotency-Key", policy.SendNone, 0, nil, nil, 0},
	}
	for _, name := range ProfileNames() {
		_, r := profiled(t, name, "")
		got := says{r.Key.Header, r.UpstreamKey.Header, r.UpstreamKey.Send, r.UpstreamKey.Deduplicates, r.UpstreamKey.Methods, r.Fingerprint.Headers, len(r.Outcomes)}
		if w, known := want[name]; !known || !reflect.DeepEqual(got, w) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, w)
		}
		// What a profile leaves alone is a route's usual default.
		var plain Route
		plain.defaults()
		if !r.Enforce || r.Key.Missing != policy.MissingReject || r.Timeout != time.Duration(plain.Timeout) || !slices.Equal(r.Methods, plain.Methods) || r.Reconcile != nil || r.Capture != nil {
			t.Errorf("%s: %+v", name, r)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("there is no profile %s", name)
	}
}

func TestARouteOverridesItsProfileKeyByKey(t *testing.T) {
	c, r := profiled(t, "stripe", "  upstream_key: {send: same, deduplicates_for: 2h}\n  fingerprint: {headers: [Stripe-Version]}\n  outcomes: [{when: 'response.status == 409', class: final}]\n")
	if u := r.UpstreamKey; u.Send != policy.SendSame || u.Deduplicates != 2*time.Hour || !slices.Equal(u.Methods, []string{"POST"}) {
		t.Errorf("%+v", u)
	}
	if !slices.Equal(r.Fingerprint.Headers, []string{"Stripe-Version"}) || len(r.Outcomes) != 1 || r.Outcomes[0].Class != policy.ClassFinal {
		t.Errorf("lists are not replaced as a whole: %+v", r)
	}
	if c.Routes[0].Profile != "stripe" {
		t.Errorf("%+v", c.Routes[0])
	}
	// Wherever the name stands.
	c, err := Parse("f", []byte("routes: [{name: r, key: {header: X-Key}, upstream: 'https://x', profile: paypal}]\n"), noEnv)
	if err != nil || c.Routes[0].Key.Header != "X-Key" || c.Routes[0].UpstreamKey.Header != "PayPal-Request-Id" {
		t.Errorf("%v %+v", err, c.Routes[0])
	}
	// And only for its own route.
	c, err = Parse("f", []byte("routes: [{name: a, match: {path: /a}, upstream: 'https://x', profile: paypal}, {name: b, upstream: 'https://x'}]\n"), noEnv)
	if err != nil || c.Routes[1].Key.Header != "Idempotency-Key" || c.Routes[1].Outcomes != nil {
		t.Errorf("%v %+v", err, c.Routes[1])
	}
}

func TestAProfileThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"routes:\n- name: a\n  upstream: http://x\n  profile: strip\n":      `4:3: routes[0].profile: "strip" is not a profile; known are adyen, github, paypal, sendgrid, shopify, slack, stripe, twilio`,
		"routes: [{name: a, upstream: 'http://x', profile: 7}]\n":           `1:42: routes[0].profile: "7" is not a profile`,
		"routes: [{name: a, upstream: 'http://x', profile: Stripe}]\n":      `"Stripe" is not a profile`,
		"routes: [{name: a, upstream: 'http://x', profile: '../stripe'}]\n": `"../stripe" is not a profile`,
		"routes: [{name: a, upstream: 'http://x', profile: [stripe]}]\n":    `1:51: routes[0].profile: must be a single value`,
		"routes: [{name: a, upstream: 'http://x', profile: &p stripe}]\n":   `anchors, aliases`,
		"routes: [{name: a, upstream: 'http://x', profil: stripe}]\n":       `did you mean "profile"?`,
		"routes: [{name: a, upstream: 'http://x', profile: 'x@hunter2'}]\n": `the value (not shown`,
	} {
		got := strings.Join(problems(t, text), "\n")
		if !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// TestAValueThatNobodyWroteSaysWhereItComesFrom.
func TestAValueThatNobodyWroteSaysWhereItComesFrom(t *testing.T) {
	for text, want := range map[string]string{
		"timeout: 24h":               "upstream_key.deduplicates_for: is 23h0m0s, which is not longer",
		"upstream_key: {send: none}": "the upstream gets no key",
	} {
		got := problems(t, "ledger: {retention: 48h}\nroutes:\n- name: a\n  upstream: http://x\n  profile: stripe\n  "+text+"\n")
		if len(got) != 1 || !strings.Contains(got[0], want) || !strings.HasSuffix(got[0], "(the profile stripe says so)") {
			t.Errorf("%s: %q", text, got)
		}
	}
	got := problems(t, "routes: [{name: a, upstream: 'http://x', profile: stripe, upstream_key: {deduplicates_for: 30s}}]\n")
	if len(got) != 1 || strings.Contains(got[0], "profile") {
		t.Errorf("what the route says itself: %q", got)
	}
}

// TestTheDocumentShowsEachProfileAsItIs.
func TestTheDocumentShowsEachProfileAsItIs(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, block := range strings.Split(string(doc), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		shown = append(shown, block)
	}
	files, err := filepath.Glob("profiles/*.yaml")
	if err != nil || len(files) != len(ProfileNames()) {
		t.Fatalf("%v %v", files, err)
	}
	for _, name := range ProfileNames() {
		text, _ := ProfileText(name)
		if !slices.Contains(shown, text) {
			t.Errorf("docs/providers.md does not show the profile %s as it is", name)
		}
		if !strings.Contains(string(doc), "profile: "+name) {
			t.Errorf("docs/providers.md has no route with profile: %s", name)
		}
	}
}

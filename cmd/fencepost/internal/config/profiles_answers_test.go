package config

import (
	"net/http"
	"strings"
	"testing"

	"fencepost/policy"
)

// byDefault says that no rule of the profile is true of an answer.
const byDefault = -1

// answer is one that a provider's documents show, or one that only looks like it.
type answer struct {
	explanation string
	status      int
	header      string // one field, "name: value"
	body        string
	rule        int // the first that is true, from 0
	want        policy.Class
}

const (
	final      = policy.ClassFinal
	notApplied = policy.ClassNotApplied
	unknown    = policy.ClassUnknown
)

// odd are answers that no rule may take for a refusal.
var odd = []answer{
	{"not JSON", 200, "", "<html>busy</html>", 0, 0},
	{"JSON that is no object", 200, "", `["ok", "errors", "THROTTLED"]`, 0, 0},
	{"a string", 200, "", `"ratelimited"`, 0, 0},
	{"null", 200, "", `null`, 0, 0},
	{"nothing", 200, "", ``, 0, 0},
	{"cut off", 200, "", `{"ok":false,"error":"ratelimi`, 0, 0},
	{"another error status", 500, "", `{"ok":false,"error":"ratelimited","errors":[{"extensions":{"code":"THROTTLED"}}]}`, 0, 0},
	{"a gateway's", 502, "retry-after: 1", `{"ok":false,"error":"ratelimited"}`, 0, 0},
	{"a server's 503 that asks to come again", 503, "retry-after: 1", ``, 0, 0},
}

var answers = map[string][]answer{
	"stripe": {
		{"created", 200, "", `{"id":"pi_1","object":"payment_intent","status":"requires_payment_method"}`, byDefault, final},
		{"the saved answer of an earlier request with this key", 200, "idempotent-replayed: true", `{"id":"pi_1"}`, byDefault, final},
		{"a card that is declined", 402, "", `{"error":{"type":"card_error","code":"card_declined"}}`, byDefault, final},
		{"a parameter that is missing", 400, "", `{"error":{"type":"invalid_request_error","code":"parameter_missing"}}`, byDefault, final},
		{"no credential", 401, "", `{"error":{"type":"invalid_request_error"}}`, byDefault, notApplied},
		{"the rate limiter", 429, "stripe-rate-limited-reason: global-rate", `{"error":{"type":"invalid_request_error","code":"rate_limit"}}`, byDefault, notApplied},
		{"the key is in use", 409, "", `{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use"}}`, 0, unknown},
		{"another conflict", 409, "stripe-should-retry: true", ``, 0, unknown},
		{"the key was used with other parameters", 400, "", `{"error":{"type":"idempotency_error"}}`, 1, unknown},
		{"an object that is called so", 200, "", `{"error":{"type":"idempotency_error"}}`, byDefault, final},
		{"a lock that was not had", 429, "", `{"error":{"type":"invalid_request_error","code":"lock_timeout"}}`, 2, unknown},
		{"a lock, with another status", 400, "", `{"error":{"code":"lock_timeout"}}`, byDefault, final},
		{"a dependency failed", 424, "", `{"error":{"type":"api_error"}}`, 3, unknown},
		{"an error of Stripe's own", 500, "stripe-should-retry: true", `{"error":{"type":"api_error"}}`, byDefault, unknown},
		{"an error without a type", 400, "", `{"error":"bad"}`, byDefault, final},
	},
	"paypal": {
		{"created", 201, "", `{"id":"5O1","status":"CREATED"}`, byDefault, final},
		{"the first request's result again", 200, "", `{"id":"5O1","status":"CREATED"}`, byDefault, final},
		{"a capture that is declined", 422, "", `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"INSTRUMENT_DECLINED"}]}`, byDefault, final},
		{"a previous request is in progress", 409, "", `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`, 0, unknown},
		{"in progress, as a text with another status", 422, "", `{"details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`, byDefault, final},
		{"an expired token", 401, "", `{"error":"invalid_token"}`, byDefault, notApplied},
		{"the rate limiter", 429, "", `{"name":"RATE_LIMIT_REACHED"}`, byDefault, notApplied},
		{"an error of PayPal's own", 500, "", `{"name":"INTERNAL_SERVER_ERROR"}`, byDefault, unknown},
	},
	"adyen": {
		{"authorised", 200, "idempotency-key: 1", `{"pspReference":"8","resultCode":"Authorised"}`, byDefault, final},
		{"refused", 200, "", `{"pspReference":"8","resultCode":"Refused"}`, byDefault, final},
		{"a transient error", 500, "transient-error: true", `{"status":500}`, 0, unknown},
		{"one that the status would call final", 422, "Transient-Error: TRUE", `{"status":422}`, 0, unknown},
		{"not a transient error", 422, "transient-error: false", `{"status":422,"errorCode":"14_030"}`, byDefault, final},
		{"in progress", 409, "", `{"status":409,"errorCode":"704"}`, 1, unknown},
		{"in progress, as 422", 422, "", `{"status":422,"errorCode":"704","message":"request already processed or in progress"}`, 2, unknown},
		{"in progress, as a number", 422, "", `{"errorCode":704}`, 2, unknown},
		{"another code", 422, "", `{"errorCode":"7040"}`, byDefault, final},
		{"no code", 422, "", `{"status":422}`, byDefault, final},
		{"the store of keys is away", 503, "", `{"errorCode":"703"}`, byDefault, unknown},
		{"forbidden", 403, "", `{"errorCode":"10_003"}`, byDefault, final},
	},
	"shopify": {
		{"created", 200, "", `{"data":{"productCreate":{"product":{"id":"gid://1"},"userErrors":[]}}}`, byDefault, final},
		{"user errors", 200, "", `{"data":{"productCreate":{"product":null,"userErrors":[{"field":["title"],"message":"is blank"}]}}}`, byDefault, final},
		{"throttled", 200, "", `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"actualQueryCost":null}}}`, 0, notApplied},
		{"throttled, and something else", 200, "", `{"errors":[{"extensions":{"code":"THROTTLED"}},{"extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}`, 1, unknown},
		{"throttled, with data", 200, "", `{"data":{"a":{"id":1}},"errors":[{"extensions":{"code":"THROTTLED"}}]}`, 1, unknown},
		{"throttled, with data that is null", 200, "", `{"data":null,"errors":[{"extensions":{"code":"THROTTLED"}}]}`, 1, unknown},
		{"throttled by its text alone", 200, "", `{"errors":[{"message":"Throttled"}]}`, 1, unknown},
		{"no error in the list", 200, "", `{"errors":[]}`, 1, unknown},
		{"errors that are a text", 200, "", `{"errors":"THROTTLED"}`, 1, unknown},
		{"an internal error", 200, "", `{"errors":[{"message":"Internal error","extensions":{"code":"INTERNAL_SERVER_ERROR"}}]}`, 1, unknown},
		{"a part of the query denied", 200, "", `{"data":{"a":{"id":1},"b":null},"errors":[{"extensions":{"code":"ACCESS_DENIED"}}]}`, 1, unknown},
		{"an object without data", 200, "", `{"ok":true}`, 2, unknown},
		{"the idempotency key is in use", 200, "", `{"data":{"refundCreate":{"refund":null,"userErrors":[{"code":"IDEMPOTENCY_CONCURRENT_REQUEST"}]}}}`, 3, unknown},
		{"in use, under an alias, beside another", 200, "", `{"data":{"b":{"userErrors":[]},"a":{"userErrors":[{"message":"x"},{"code":"IDEMPOTENCY_CONCURRENT_REQUEST"}]}}}`, 3, unknown},
		{"used with other parameters", 200, "", `{"data":{"refundCreate":{"userErrors":[{"code":"IDEMPOTENCY_KEY_PARAMETER_MISMATCH"}]}}}`, byDefault, final},
		{"no such shop", 404, "", `{"errors":"Not Found"}`, byDefault, final},
		{"too many requests", 429, "", `{"errors":"Exceeded"}`, byDefault, notApplied},
		{"an error of Shopify's own", 503, "", `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, byDefault, unknown},
	},
	"slack": {
		{"posted", 200, "", `{"ok":true,"channel":"C1","ts":"1503435956.000247"}`, byDefault, final},
		{"posted, with a warning", 200, "", `{"ok":true,"warning":"missing_charset"}`, byDefault, final},
		{"no such channel", 200, "", `{"ok":false,"error":"channel_not_found"}`, byDefault, final},
		{"rate limited", 200, "", `{"ok":false,"error":"ratelimited"}`, 0, notApplied},
		{"too many messages", 200, "", `{"ok":false,"error":"rate_limited"}`, 0, notApplied},
		{"rate limited by status", 429, "retry-after: 30", `{"ok":false,"error":"ratelimited"}`, byDefault, notApplied},
		{"an expired token", 200, "", `{"ok":false,"error":"token_expired"}`, 1, notApplied},
		{"no token", 200, "", `{"ok":false,"error":"not_authed"}`, 1, notApplied},
		{"not in the list of those let in", 200, "", `{"ok":false,"error":"missing_scope"}`, byDefault, final},
		{"an internal error", 200, "", `{"ok":false,"error":"internal_error"}`, 2, unknown},
		{"a fatal error", 200, "", `{"ok":false,"error":"fatal_error"}`, 2, unknown},
		{"away", 200, "", `{"ok":false,"error":"service_unavailable"}`, 2, unknown},
		{"success that mentions an error", 200, "", `{"ok":true,"error":"ratelimited"}`, byDefault, final},
		{"ok as a text", 200, "", `{"ok":"false","error":"ratelimited"}`, 3, unknown},
		{"no ok", 200, "", `{"error":"ratelimited"}`, 3, unknown},
		{"no error", 200, "", `{"ok":false}`, 3, unknown},
		{"an error that is no text", 200, "", `{"ok":false,"error":{"code":"ratelimited"}}`, 3, unknown},
		{"a longer word", 200, "", `{"ok":false,"error":"ratelimited_not"}`, byDefault, final},
	},
	"github": {
		{"created", 201, "x-ratelimit-remaining: 0", `{"number":1}`, byDefault, final},
		{"validation failed", 422, "x-ratelimit-remaining: 0", `{"message":"Validation Failed","errors":[{"code":"missing_field"}]}`, byDefault, final},
		{"the primary limit", 403, "x-ratelimit-remaining: 0", `{"message":"API rate limit exceeded"}`, 0, notApplied},
		{"forbidden", 403, "x-ratelimit-remaining: 4999", `{"message":"Resource not accessible by integration"}`, byDefault, final},
		{"forbidden, no fields", 403, "", `{"message":"Must have admin rights to Repository."}`, byDefault, final},
		{"a secondary limit that says when", 403, "retry-after: 60", `{"message":"slow down"}`, 1, notApplied},
		{"a secondary limit that does not", 403, "x-ratelimit-remaining: 4000", `{"message":"You have exceeded a secondary rate limit."}`, 2, notApplied},
		{"a limit by status", 429, "", ``, byDefault, notApplied},
		{"a redirect", 307, "location: https://api.github.com/x", ``, byDefault, final},
		{"a message that is no text", 403, "", `{"message":["secondary rate limit"]}`, byDefault, final},
		{"GraphQL, done", 200, "x-ratelimit-remaining: 0", `{"data":{"addComment":{"subject":{"id":"1"}}}}`, byDefault, final},
		{"GraphQL, a limit", 200, "x-ratelimit-remaining: 0", `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, 3, unknown},
		{"GraphQL, a part", 200, "", `{"data":{"a":{"id":1},"b":null},"errors":[{"message":"Something went wrong"}]}`, 3, unknown},
		{"a list of errors that is empty", 200, "", `{"errors":[]}`, byDefault, final},
		{"a timeout", 502, "", `{"message":"Server Error"}`, byDefault, unknown},
	},
	"twilio": {
		{"queued", 201, "", `{"sid":"SM1","status":"queued"}`, byDefault, final},
		{"refused", 400, "", `{"code":21211,"message":"Invalid 'To' Phone Number","status":400}`, byDefault, final},
		{"too many requests", 429, "", `{"code":20429,"status":429}`, byDefault, notApplied},
		{"its code with another status", 400, "", `{"code":20429}`, byDefault, final},
		{"an error of Twilio's own", 500, "", `{"code":20500}`, byDefault, unknown},
		{"away", 503, "", `{"code":20503}`, byDefault, unknown},
	},
	"sendgrid": {
		{"queued", 202, "x-message-id: 1", ``, byDefault, final},
		{"refused", 400, "", `{"errors":[{"field":"to","message":"is missing"}]}`, byDefault, final},
		{"blocked for a while", 403, "", `{"errors":[{"message":"blocked"}]}`, byDefault, final},
		{"too many requests", 429, "", `{"errors":[{"message":"too many requests"}]}`, byDefault, notApplied},
		{"an error of SendGrid's own", 500, "", ``, byDefault, unknown},
	},
}

// TestProfilesReadAnswersAsTheDocumentsDo: each rule is the one that decides
// somewhere, and what only resembles such an answer is left to the defaults.
func TestProfilesReadAnswersAsTheDocumentsDo(t *testing.T) {
	for _, name := range ProfileNames() {
		t.Run(name, func(t *testing.T) {
			_, r := profiled(t, name, "")
			decided := make([]bool, len(r.Outcomes))
			for _, a := range answers[name] {
				m := a.message()
				if got := policy.ClassifyBy(r.Outcomes, m); got != a.want {
					t.Errorf("%s: %v, want %v", a.explanation, got, a.want)
				}
				rule := firstTrue(r.Outcomes, m)
				if rule != a.rule {
					t.Errorf("%s: rule %d decides, want %d", a.explanation, rule, a.rule)
				}
				if rule >= 0 {
					decided[rule] = true
				}
			}
			for i, d := range decided {
				if !d {
					t.Errorf("no answer is decided by rule %d, %s", i, r.Outcomes[i].When)
				}
			}
			if len(answers[name]) < 5 {
				t.Errorf("only %d answers", len(answers[name]))
			}
			for _, a := range odd {
				if got := policy.ClassifyBy(r.Outcomes, a.message()); got == policy.ClassNotApplied || a.status >= 500 && got != policy.ClassUnknown {
					t.Errorf("%s: %v", a.explanation, got)
				}
			}
		})
	}
}

// TestWhatCannotBeReadIsNoSuccess: with these two, every answer to a request that
// was done has a form of its own.
func TestWhatCannotBeReadIsNoSuccess(t *testing.T) {
	for _, name := range []string{"slack", "shopify"} {
		_, r := profiled(t, name, "")
		for _, a := range odd {
			if got := policy.ClassifyBy(r.Outcomes, a.message()); got != policy.ClassUnknown {
				t.Errorf("%s, %s: %v", name, a.explanation, got)
			}
		}
	}
}

func (a *answer) message() *policy.Message {
	h := make(http.Header)
	if name, value, ok := strings.Cut(a.header, ": "); ok {
		h.Set(name, value)
	}
	return &policy.Message{Status: a.status, Header: h, Body: []byte(a.body)}
}

// firstTrue gives the index of the rule that decides over m, or byDefault.
func firstTrue(rules []policy.OutcomeRule, m *policy.Message) int {
	for i, r := range rules {
		// Alone, with a class that is not the default, a rule shows itself.
		r.Class = (policy.Classify(m.Status) + 1) % 3
		if policy.ClassifyBy([]policy.OutcomeRule{r}, m) == r.Class {
			return i
		}
	}
	return byDefault
}

package policy

import (
	"net/textproto"
	"testing"
)

var storedFields = []string{
	"Location", "ETag", "Content-Type", "Content-Length", "Content-Encoding", "Content-Location",
	"Content-Disposition", "Content-Language", "Content-Digest", "Link", "Vary", "Cache-Control",
	"Expires", "Last-Modified", "Preference-Applied", "Deprecation", "Sunset", "Via", "Server",
	"X-Request-Id", "Request-Id", "X-Amzn-RequestId", "CF-Ray", "X-GitHub-Request-Id",
	"Access-Control-Allow-Origin", "Stripe-Version", "X-Custom",
	// Neighbours of names that are not stored.
	"Dated", "Aged", "X-Rate", "Proxyish", "Fencepost", "Rate-Limit-Docs",
}

var notStoredFields = []string{
	"Set-Cookie", "Set-Cookie2", "Authorization", "X-Auth-Token", "X-Subject-Token", "X-CSRF-Token",
	"WWW-Authenticate", "Authentication-Info",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info", "Proxy-Status", "Proxy-Connection",
	"Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "HTTP2-Settings",
	"Date", "Age", "Retry-After", "Server-Timing",
	"Alt-Svc", "Strict-Transport-Security", "NEL", "Report-To",
	"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset",
	"X-RateLimit-Limit", "X-RateLimit-Remaining-Tokens", "X-Rate-Limit-Reset",
	"Anthropic-RateLimit-Requests-Remaining", "X-Shopify-Shop-Api-Call-Limit",
	"Fencepost-State", "Fencepost-Operation", "Idempotent-Replayed", "Idempotency-Key",
}

func TestAReplayCarriesTheResultAndNothingOfTheExchange(t *testing.T) {
	for want, names := range map[bool][]string{true: storedFields, false: notStoredFields} {
		for _, name := range names {
			if got := Storable(textproto.CanonicalMIMEHeaderKey(name)); got != want {
				t.Errorf("Storable(%s) = %v, want %v", name, got, want)
			}
		}
	}
}

func TestHopByHopFields(t *testing.T) {
	for _, name := range []string{
		"Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
		"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "HTTP2-Settings",
	} {
		if !HopByHop(textproto.CanonicalMIMEHeaderKey(name)) {
			t.Errorf("HopByHop(%s) = false", name)
		}
	}
	for _, name := range []string{"Date", "Set-Cookie", "Proxy-Status", "Content-Length", "Host", "Expect", "Idempotency-Key"} {
		if HopByHop(name) {
			t.Errorf("HopByHop(%s) = true", name)
		}
	}
}

func TestStorableDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		for _, name := range storedFields {
			Storable(name)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

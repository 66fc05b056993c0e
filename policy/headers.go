package policy

import "strings"

// HopByHop reports whether a field belongs to one connection and must be neither
// passed on nor stored (RFC 9110 section 7.6.1). The name is in canonical form
// (textproto.CanonicalMIMEHeaderKey). Fields that a message names in its own
// Connection field are hop-by-hop too: see NamedInConnection.
func HopByHop(canonicalName string) bool {
	switch canonicalName {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Connection", // never standard, still sent
		"Http2-Settings":   // part of the h2c upgrade, RFC 7540 section 3.2.1
		return true
	}
	return false
}

// Storable reports whether a response field may be kept and given to duplicates.
// The name is in canonical form. It does not allocate.
//
// The rule: a replay is what was received (DESIGN section 2.6), so a field stays
// unless it is a credential, belongs to the connection, is true only of the
// exchange that carried it in a way a client acts on, or is Fencepost's own to say.
// Everything that describes the result stays: Location, ETag, Content-*, Link,
// Vary, Cache-Control. The provider's request ids (X-Request-Id, Request-Id,
// Cf-Ray and their like) stay too: they name the exchange that had the effect,
// which is the one its support desk has to find.
func Storable(canonicalName string) bool {
	if HopByHop(canonicalName) {
		return false
	}
	switch canonicalName {
	// Credentials. The ledger keeps none, and a session given to the first caller
	// must not be handed out again.
	case "Set-Cookie", "Set-Cookie2",
		"Authorization",
		"X-Auth-Token", "X-Subject-Token", // OpenStack's way to return a token
		"X-Csrf-Token": // bound to the session whose cookie is not kept either
		return false

	// One round of an authentication dialogue: nonces that are spent.
	case "Www-Authenticate", "Authentication-Info":
		return false

	// True at one instant only. The replay carries its own Date; an old Age would
	// be added to a cache's arithmetic; an old Retry-After asks for a wait that is over.
	case "Date", "Age", "Retry-After":
		return false

	// Measurements of an exchange that the duplicate did not have.
	case "Server-Timing":
		return false

	// The host's policy at that time, with a lifetime that counts from receipt. A
	// replay could bring back a policy that has been withdrawn.
	case "Alt-Svc", "Strict-Transport-Security", "Nel", "Report-To":
		return false

	// Ours. Kept from an upstream, they would say of our replay what was said of its.
	case "Idempotent-Replayed", "Idempotency-Key":
		return false

	// Rate limits without a common prefix.
	case "X-Shopify-Shop-Api-Call-Limit":
		return false
	}
	for _, family := range notStoredFamilies {
		if strings.HasPrefix(canonicalName, family) {
			return false
		}
	}
	return true
}

// notStoredFamilies are prefixes of names that are not stored.
var notStoredFamilies = [...]string{
	"Fencepost-", // ours
	"Proxy-",     // between neighbours, Proxy-Status included: ours is about the replay

	// What was left of a quota then. A client that paces itself by an old figure
	// stops for nothing or runs into the limit.
	"Ratelimit", // the field itself, Ratelimit-Policy, and the older Ratelimit-Limit and others
	"X-Ratelimit",
	"X-Rate-Limit",
	"Anthropic-Ratelimit-",
}

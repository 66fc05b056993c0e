package proxy

import (
	"net/textproto"
	"net/url"
	"strings"
)

// Names on the wire (DESIGN section 7). None of the Fencepost-* fields goes
// upstream.
const (
	headerAuthorization = "Fencepost-Authorization"
	headerLease         = "Fencepost-Lease"
	headerOperation     = "Fencepost-Operation"
	headerState         = "Fencepost-State"
	headerDerived       = "Fencepost-Derived-Key"
	headerAllow         = "Fencepost-Allow-Duplicate"
	headerKey           = "Idempotency-Key"
	headerReplayed      = "Idempotent-Replayed"
	ownPrefix           = "Fencepost-"

	// apiPrefix is where Fencepost's own API lives on the reverse listener.
	apiPrefix = "/_fencepost/"
)

// lookupPath is the URL path at which a key's operation is looked up.
func lookupPath(key string) string {
	return apiPrefix + "v1/operations/" + url.PathEscape(key)
}

// ownField reports whether a canonical field name is Fencepost's.
func ownField(name string) bool { return strings.HasPrefix(name, ownPrefix) }

func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

package policy

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Route is one rule: which requests it is for, where they go, and how far they are
// governed (DESIGN section 9). Fill one and give it to NewTable, which checks it and
// puts the defaults in; the routes a Table gives out are read-only.
type Route struct {
	// Name tells the route in logs, metrics and records: 1 to 64 letters, digits,
	// dots, underscores and hyphens, unique in its table. Required.
	Name string

	// Host the request must name: "" is any, "api.example.com" exactly that one,
	// "*.example.com" every name below example.com, however deep, but not
	// example.com itself. An IP address is compared as an address, in any spelling.
	// Case, port and a trailing dot of the request do not matter. Non-ASCII names
	// are written in their xn-- form.
	Host string

	// Path the request must start with, percent-encoded as in a URL. "" and "/" are
	// every path; "/v1/" is what starts with "/v1/"; "/v1" is "/v1" itself and what
	// starts with "/v1/", but not "/v10". Case matters. How encodings are compared:
	// Table.Match.
	Path string

	// Upstream the request is sent to: http or https, a host, perhaps a port, and
	// perhaps a path that goes in front of the request's whole path. Required, but
	// on a route of the egress proxy, which has none.
	Upstream *url.URL

	// Egress says that the route is for the egress proxy: the target is the request's
	// own.
	Egress bool

	// StripPath is taken from the front of the request's path before the upstream's
	// path is put there. It must be the beginning of Path, on a segment border.
	StripPath string

	// HostField is the Host that the upstream gets: "" is the upstream's own,
	// HostOfClient what the client sent, anything else is sent as it stands. It is
	// part of the target, and so of the fingerprint.
	HostField string

	// Connect says how the upstream is connected to.
	Connect ConnectRule

	// Fields are changes to the request's header on its way. They are in no
	// fingerprint: a credential that is put in here may change between retries.
	Fields FieldRule

	// Enforce turns the route's rules on. Without it the route is a plain reverse proxy.
	Enforce bool

	// Methods that are governed. Others pass, unless they bring a key. Upper case;
	// safe methods cannot be listed. Default: POST, PUT, PATCH, DELETE.
	Methods []string

	Key         KeyRule
	UpstreamKey UpstreamKeyRule
	Fingerprint FingerprintRule

	// Wait is how long a duplicate waits for a result that is in flight. 0, the
	// default, answers 409 at once.
	Wait time.Duration

	// Timeout is how long an upstream may take to answer before the outcome is
	// unknown. Default: 60 s.
	Timeout time.Duration

	Limits Limits

	Lease LeaseRule

	SamePayload SamePayloadRule

	// Outcomes override what an answer is worth, the first true one first.
	Outcomes []OutcomeRule
	// Capture takes values from the request for reconciliation.
	Capture []CaptureRule
	// Reconcile asks the provider about an unknown outcome; nil is no way to ask.
	Reconcile *Reconciler
}

// HostOfClient is the Route.HostField that passes the client's Host on.
const HostOfClient = "client"

// ConnectRule says how an upstream is connected to. It is comparable: routes with
// equal rules share connections.
type ConnectRule struct {
	// HTTP is the protocol's version. The default speaks HTTP/1.1, on which alone
	// "no byte has left" can be counted.
	HTTP HTTPVersion
	// ServerName is the name that TLS asks for and checks, where it is not the
	// upstream's host.
	ServerName string
	// Roots are the certificate authorities that the upstream is checked against,
	// PEM. Default: the proxy's.
	Roots string
	// Certificate and Key are what the client shows of itself, PEM. The key is a
	// secret.
	Certificate, Key string
}

// HTTPVersion is what is spoken to an upstream.
type HTTPVersion uint8

const (
	// HTTP1 is HTTP/1.1. The zero value.
	HTTP1 HTTPVersion = iota
	// HTTP2 offers HTTP/2 by ALPN, and speaks HTTP/1.1 where the upstream prefers it.
	HTTP2
	// H2C is HTTP/2 without TLS, by prior knowledge.
	H2C
)

// FieldRule changes a request's header on its way to the upstream.
type FieldRule struct {
	// Set gives fields the value named, whatever the client sent. Remove takes
	// fields out. Names are in canonical form once they are in a Table.
	Set    map[string]string
	Remove []string
}

// LeaseRule says whether a request must be made under a lease, and whose.
type LeaseRule struct {
	// Required refuses a governed request without a Fencepost-Lease field.
	Required bool
	// External says that tokens come from the caller's own lease system: the
	// highest token seen for a run wins. Otherwise a token must be the current one
	// of a lease that Fencepost gave.
	External bool
}

// KeyRule says where a request's key is and what happens without one.
type KeyRule struct {
	// Header is the field that holds the key, in canonical form once it is in a
	// Table. Default: Idempotency-Key.
	Header string
	// Missing is what happens to a request of a governed method that has no key.
	Missing Missing
	// Window is how long a derived key lasts: after it, the same request is a new
	// one. Required with MissingDerive.
	Window time.Duration
}

// SamePayloadRule says what happens to the payload of an earlier request that
// comes under a new key: agents re-issue a call with a fresh key.
type SamePayloadRule struct {
	// Reject refuses it within Window.
	Reject bool
	Window time.Duration
}

// Missing is what happens to a governed request without a key.
type Missing uint8

const (
	// MissingReject refuses it: without a key, a retry is a second effect. The
	// zero value.
	MissingReject Missing = iota
	// MissingPass sends it on ungoverned.
	MissingPass
	// MissingDerive makes a key of scope, lease run, method, target and payload:
	// the same request within KeyRule.Window is a duplicate.
	MissingDerive
)

// UpstreamKeyRule says which key the upstream gets.
type UpstreamKeyRule struct {
	Send UpstreamKeySend
	// Header is the field it is sent in. Default: KeyRule.Header.
	Header string
	// Deduplicates is how long after the first send the upstream itself recognises
	// this key, so that an UNKNOWN may be sent again with it. Zero: it does not.
	Deduplicates time.Duration
	// Methods are those whose requests it recognises by the key: many providers say
	// so of POST only. Upper case. Default: every governed one.
	Methods []string
}

// Recognises says for how long after the first send the upstream recognises the
// key of a request with this method. Another spelling of a listed method is not
// listed: whether the upstream takes "post" for POST is not ours to hope.
func (u *UpstreamKeyRule) Recognises(method string) time.Duration {
	if len(u.Methods) > 0 && !slices.Contains(u.Methods, method) {
		return 0
	}
	return u.Deduplicates
}

// UpstreamKeySend is which key the upstream gets.
type UpstreamKeySend uint8

const (
	// SendSame gives the upstream the caller's key, so that an upstream which
	// deduplicates by itself is a second fence. The zero value.
	SendSame UpstreamKeySend = iota
	// SendNone keeps the key here, for an upstream that refuses unknown fields.
	SendNone
	// SendDerived gives the upstream a key made of scope, key and target, so that
	// the caller's key does not cross a trust boundary.
	SendDerived
)

// FingerprintRule says what makes two requests the same one, besides method and
// target, which always count.
type FingerprintRule struct {
	// Body is how bodies are compared. A body that is not beyond doubt of this form
	// is compared byte by byte.
	Body BodyKind
	// Ignore are JSON Pointers (RFC 6901) to what may differ: what they point to
	// counts as absent. One of a single part is also the name of a form's field or
	// part. In an array a number is an element, which keeps its place. Checked by
	// CheckIgnore.
	Ignore []string
	// ignored is Ignore as it is looked up, once the route is in a Table.
	ignored *ignored

	// Headers are request fields that count too; in canonical form and sorted once
	// they are in a Table. Credentials cannot be listed: they change between retries.
	Headers []string
}

// Limits bound what is kept of one exchange, in bytes.
type Limits struct {
	// Request is the longest request body. Default: 10 MiB.
	Request int64
	// Response is the longest response body that is kept for replay. Default: 1 MiB.
	Response int64
	// Parse is the longest body, without its content coding, that is compared by
	// more than its bytes; a parsed JSON text or form is held in memory. The parts
	// of a multipart body are not held, so it may be as long as Request. Default: 4 MiB.
	Parse int64
}

// Governed reports whether the route binds a request to a key. hasKey is whether
// the key's field is present, well-formed or not: a malformed key is refused, and
// only a governed request can be. Whether a governed request may do without a key
// is KeyRule.Missing's to say.
//
// Safe methods (RFC 9110 section 9.2.1) never are, even with a key: they have no
// effect to fence. A listed method is recognised in any case, because "post" is not
// POST by the letter but is to many servers; a safe method is only itself.
func (r *Route) Governed(method string, hasKey bool) bool {
	switch {
	case !r.Enforce || SafeMethod(method):
		return false
	case hasKey:
		return true
	}
	for _, listed := range r.Methods {
		if equalFold(listed, method) {
			return true
		}
	}
	return false
}

// SafeMethod reports whether a request with this method asks for no change, so
// that sending it again does no harm (RFC 9110, section 9.2.1).
func SafeMethod(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// overrides are fields by which many servers let a request be of another method than
// its line says.
var overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// Override gives the method that a request's header, in canonical form, asks for
// instead of the one of its line, or "".
func Override(header map[string][]string) string {
	for _, name := range overrides {
		if values := header[name]; len(values) > 0 {
			return strings.ToUpper(strings.Join(values, ","))
		}
	}
	return ""
}

package keystore

// ID names an operation: one logical effect of one caller.
type ID struct {
	// Scope is the caller's identity, never a provider credential.
	Scope string
	// Key is the idempotency key in its one canonical form.
	Key string
}

// Target is where the effect happens.
type Target struct {
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
}

// Record is everything the ledger knows about one operation. Records are
// values: [Next] returns a changed copy and never writes into its input.
type Record struct {
	ID

	// Operation is a UUIDv7 given at the first reservation.
	Operation string
	// Version counts writes, from 1. A swap names the version it makes.
	Version uint64
	// Writer is the id of the write that made this version.
	Writer string

	// Fingerprint binds the key to the method, target and payload it was first
	// used with. It carries the name of its scheme.
	Fingerprint string
	Method      string
	Target      Target
	// Route is the name of the policy that governed the first request.
	Route string
	// Derived says that Fencepost made the key, not the caller.
	Derived bool

	State State
	// Attempt counts attempts from 1; AttemptID is the current one's.
	Attempt   int
	AttemptID string
	// Owner is the proxy instance that runs the current attempt, or "" when
	// nobody does.
	Owner string
	// Lease is what the current attempt was reserved under, if anything.
	Lease *LeaseRef

	// The instants are the store's. Deadline bounds the owner's silence in
	// Reserved and Dispatched; Expires is when the record may be reduced or
	// forgotten, zero in states that never expire.
	ReservedAt   Instant
	DispatchedAt Instant
	SettledAt    Instant
	UpdatedAt    Instant
	Deadline     Instant
	Expires      Instant

	// FirstSentAt is when the first attempt was marked as sent; it never changes.
	FirstSentAt Instant
	// InDoubt says that the current attempt is a Resend: whatever becomes of it, an
	// earlier one may have taken effect.
	InDoubt bool
	// Probing is the instance that asks the provider about an Unknown operation
	// right now, until Deadline; Probes counts how often that was done in vain.
	// With nobody probing, Deadline is when the next look is due.
	Probing string
	Probes  int

	// Outcome is set in Completed, and in Unknown when an ambiguous answer came.
	Outcome *Outcome
	// Tombstone says that the response was dropped after its retention.
	Tombstone bool
	// Captured holds values taken from the request for reconciliation.
	Captured map[string]string
	// History is what happened, oldest first, bounded by [MaxHistory].
	History []Transition
	// Evidence is what arrived but changed nothing, bounded by [MaxEvidence].
	Evidence []Evidence
}

// MaxHistory and MaxEvidence bound what one record keeps. The first entry of a
// history is always kept: it says where the operation came from.
const (
	MaxHistory  = 32
	MaxEvidence = 8
)

// LeaseRef is the lease a request was made under.
type LeaseRef struct {
	Run   string `json:"run"`
	Token uint64 `json:"token"`
}

// Source says how an outcome became known.
type Source string

const (
	// FromResponse: the upstream answered the attempt that was waiting.
	FromResponse Source = "response"
	// FromReconcile: a lookup at the provider confirmed it.
	FromReconcile Source = "reconciled"
	// FromOperator: a person settled it, with a reason.
	FromOperator Source = "operator"
	// FromLateResponse: the upstream's answer came after the record read Unknown.
	FromLateResponse Source = "late_response"
)

// Outcome is what is known of the effect's result. The body is stored beside
// the record, so that a transition does not write it again.
type Outcome struct {
	Source Source `json:"source"`
	// Status is the upstream's HTTP status.
	Status int `json:"status"`
	// Header holds the response fields that are safe to replay, in order.
	Header []Field `json:"header,omitempty"`
	// Trailer holds the fields that came after the body.
	Trailer []Field `json:"trailer,omitempty"`
	// BodySize is the length in bytes of the whole body as received.
	BodySize int64 `json:"body_size"`
	// BodySHA256 is the hex digest of the whole body, kept or not.
	BodySHA256 string `json:"body_sha256,omitempty"`
	// Coding says how the body is compressed where it is stored, "" not at all;
	// SealKey is the id of the key that it is sealed with, "" for none, and Sealed
	// then holds the header, trailer and digest. See [Vault].
	Coding  string `json:"-"`
	SealKey string `json:"-"`
	Sealed  []byte `json:"-"`
	// Retained says that the body is stored and can be replayed. An empty body
	// is always retained.
	Retained bool `json:"retained"`
}

// Field is one header line.
type Field struct {
	Name  string `json:"n"`
	Value string `json:"v"`
}

// Transition is one line of a record's history.
type Transition struct {
	Version uint64    `json:"version"`
	At      Instant   `json:"at"`
	From    State     `json:"from"`
	To      State     `json:"to"`
	Event   EventKind `json:"event"`
	// By is the instance or the person who did it.
	By string `json:"by"`
	// Attempt is the attempt it concerns.
	Attempt string `json:"attempt,omitempty"`
	Why     string `json:"why,omitempty"`
}

// Evidence is something learnt that could not change the state: a late answer
// of an attempt that was superseded or settled otherwise.
type Evidence struct {
	At      Instant `json:"at"`
	Attempt string  `json:"attempt"`
	By      string  `json:"by"`
	Status  int     `json:"status,omitempty"`
	Why     string  `json:"why"`
}

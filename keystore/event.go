package keystore

import (
	"fmt"
	"time"
)

// EventKind names something that happens to an operation.
type EventKind uint8

// The events, by who brings them.
const (
	// EventNone is the zero value; [Next] refuses it.
	EventNone EventKind = iota

	// Reserve: a request brings a new key. None → Reserved.
	Reserve
	// TakeOver: a request brings a key whose reservation nobody holds.
	// Reserved (free) → Reserved, under a new attempt.
	TakeOver
	// Mark: the attempt is about to send. Reserved → Dispatched.
	Mark
	// Extend: the attempt's owner is slow but alive; moves the deadline only and
	// leaves no line in the history.
	Extend
	// Complete: the attempt was answered. Dispatched → Completed; or, while
	// nobody settled it otherwise, Unknown → Completed as a late response.
	Complete
	// Doubt: the attempt was sent and its outcome is not known. Dispatched → Unknown.
	Doubt
	// Release: the attempt is proved not to have been applied: it was not sent,
	// or the upstream said so. Reserved, Dispatched or Unknown → Reserved (free); but
	// to Unknown where an earlier attempt is in doubt, of which it says nothing.
	Release

	// Confirm: a provider lookup shows the effect. Unknown → Completed.
	Confirm
	// Clear: evidence or an operator says it was not applied; one more send is
	// allowed. Unknown → Reserved (free).
	Clear
	// Resolve: an operator gives the outcome. Unknown → Completed.
	Resolve
	// Abandon: an operator says it did not happen and must not. Unknown or free
	// Reserved → Abandoned.
	Abandon
	// Note: evidence that settles nothing is kept. Any state, unchanged.
	Note

	// Bury: retention is over; the response is dropped. Completed or Abandoned →
	// the same as a tombstone.
	Bury

	// Probe: an instance begins to ask the provider. Unknown → Unknown, held by
	// it for a while: there is never more than one reconciliation at once.
	Probe
	// Probed: the answer settled nothing. Unknown → Unknown, with the evidence and
	// the time of the next look.
	Probed

	// Dispatch: Reserve and Mark in one write, where a connection to the upstream
	// is at hand before the key is claimed. None → Dispatched.
	Dispatch

	// Resend: the request is about to be sent again although the earlier send is in
	// doubt, because the upstream recognises its key. Unknown → Dispatched, under a
	// new attempt, with nothing in between: until it is written the doubt stands, and
	// an attempt that comes to nothing afterwards leaves it as it was.
	Resend
)

var eventNames = [...]string{"none", "reserve", "take_over", "mark", "extend", "complete", "doubt", "release", "confirm", "clear", "resolve", "abandon", "note", "bury", "probe", "probed", "dispatch", "resend"}

// String returns the name used on the wire and in stored records.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// MarshalText writes the wire name.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the wire name. A name this version does not know becomes
// EventNone: a record written by a later version stays readable.
func (k *EventKind) UnmarshalText(b []byte) error {
	*k = EventNone
	for i, n := range eventNames {
		if n == string(b) {
			*k = EventKind(i)
		}
	}
	return nil
}

// Event is something that happens to an operation. Which fields matter depends
// on the kind.
type Event struct {
	Kind EventKind

	// Writer is the id of this write, unique in the world. A write repeated after
	// a lost reply must bring the same one.
	Writer string
	// By is the proxy instance or the person behind the event.
	By string
	// Why is the reason in words, for the history.
	Why string

	// Attempt is the attempt that speaks, or that begins with Reserve, TakeOver and
	// Resend.
	Attempt string
	// Lease is what Reserve, TakeOver and Resend were asked under, nil for none.
	Lease *LeaseRef
	// ExternalLease says that tokens come from the caller's own lease system:
	// the highest token seen wins.
	ExternalLease bool

	// Silence is how long the owner may be silent before it counts as gone:
	// Reserve, TakeOver, Mark, Resend, Extend, Probe. For Probed it is the time to the next
	// look.
	Silence time.Duration
	// Keep is how long the record stays in the state it reaches: Reserve,
	// TakeOver, Release, Clear, Complete, Confirm, Resolve, Abandon, Bury.
	Keep time.Duration

	// Due makes a Probe wait its turn: it is refused before the time that the last
	// look has set for the next one. Without it, a Probe looks at once.
	Due bool

	// New is the identity of the operation, for Reserve: ID, Operation,
	// Fingerprint, Method, Target, Route, Derived and Captured are taken from it.
	New *Record
	// Outcome is the answer, for Complete, Confirm and Resolve, and for Doubt
	// where an ambiguous answer came. Body is its body, kept where
	// Outcome.Retained says so.
	Outcome *Outcome
	Body    []byte
}

// Refusal says why an event cannot happen to a record. The empty Refusal is
// consent. It is an expected value, not an error.
type Refusal string

// The reasons to refuse.
const (
	Allowed           Refusal = ""
	RefusedState      Refusal = "the operation's state does not allow it"
	RefusedSuperseded Refusal = "the attempt was superseded by another"
	RefusedHeld       Refusal = "a living owner holds the operation"
	RefusedNotDue     Refusal = "the next look at the operation is not due yet"
	RefusedExists     Refusal = "the operation exists already"
	RefusedEvent      Refusal = "the event is incomplete or not known"
)

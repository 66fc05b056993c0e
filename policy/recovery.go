package policy

import (
	"fmt"
	"time"
)

// Evidence is what a provider lookup brought.
type Evidence uint8

// The kinds of evidence.
const (
	// EvidenceNone: nobody asked, or there is no way to ask. The zero value.
	EvidenceNone Evidence = iota
	// EvidenceConfirmed: the provider has the effect.
	EvidenceConfirmed
	// EvidenceNotFound: the provider does not have it.
	EvidenceNotFound
	// EvidenceAmbiguous: the answer says both, neither, or nothing readable.
	EvidenceAmbiguous
	// EvidenceUnavailable: there was no answer.
	EvidenceUnavailable
)

var evidenceNames = [...]string{"none", "confirmed", "not_found", "ambiguous", "unavailable"}

// String returns a short name for logs and histories.
func (e Evidence) String() string {
	if int(e) < len(evidenceNames) {
		return evidenceNames[e]
	}
	return fmt.Sprintf("evidence(%d)", uint8(e))
}

// Situation is what the recovery decision depends on.
type Situation struct {
	// Sent is false for a reservation: nothing was sent.
	Sent bool
	// Alive says that the attempt's owner may still be at it.
	Alive bool
	// Evidence is the newest of the provider's lookup.
	Evidence Evidence
	// SinceSend is how long ago the send ended without an answer, by the ledger's
	// clock.
	SinceSend time.Duration
	// Complete is the provider's guarantee that a processed request is found, and
	// Settle how long after the send it holds.
	Complete bool
	Settle   time.Duration
	// Deduplicates is how long after the first send the upstream itself
	// recognises the key; zero means that it does not. SinceFirst is how long ago
	// that first send was.
	Deduplicates time.Duration
	SinceFirst   time.Duration
}

// Action is what may be done about an operation.
type Action uint8

// The actions.
const (
	// ActionStay: it stays UNKNOWN; evidence, policy or a person is needed. The
	// zero value.
	ActionStay Action = iota
	// ActionSend: nothing was sent; send with the original key.
	ActionSend
	// ActionWait: its owner is alive; wait, or come back.
	ActionWait
	// ActionRecord: record the outcome that the evidence shows; do not send.
	ActionRecord
	// ActionRelease: it was not applied; one more send is allowed.
	ActionRelease
	// ActionResend: send again with the same upstream key, which the upstream
	// recognises.
	ActionResend
)

var actionNames = [...]string{"stay", "send", "wait", "record", "release", "resend"}

// String returns a short name.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Recover is the recovery table (DESIGN section 5).
func Recover(s Situation) Action {
	switch {
	case s.Alive:
		return ActionWait
	case !s.Sent:
		return ActionSend
	}
	switch s.Evidence {
	case EvidenceConfirmed:
		return ActionRecord
	case EvidenceNotFound:
		if s.Complete && s.SinceSend >= s.Settle {
			return ActionRelease
		}
	}
	// The upstream's own memory of the key stands in for evidence, as long as it
	// lasts: whatever became of the first send, the same key has one effect.
	if s.Deduplicates > 0 && s.SinceFirst < s.Deduplicates {
		return ActionResend
	}
	return ActionStay
}

package policy

// Class says what an upstream's answer proves about the effect (DESIGN section 6).
// Its zero value is ClassUnknown, so an outcome that nobody classified is in doubt
// and never sent again.
//
// A Class is about an answer that arrived whole. An answer that was cut short is
// ClassUnknown whatever its status, and a request that never left has no Class;
// both are for the caller to see, not for a status to tell.
type Class uint8

const (
	// ClassUnknown: the effect may or may not have happened. The operation waits
	// for evidence and is not retried.
	ClassUnknown Class = iota
	// ClassFinal: this answer is the outcome. It is recorded and replayed.
	ClassFinal
	// ClassNotApplied: the upstream refused before doing anything. The answer is
	// passed on and the key is released, so the same key may try again.
	ClassNotApplied
)

// String gives the class as configuration and records spell it: "unknown",
// "final" or "not_applied". A value outside the constants reads "unknown".
func (c Class) String() string {
	switch c {
	case ClassFinal:
		return "final"
	case ClassNotApplied:
		return "not_applied"
	default:
		return "unknown"
	}
}

// Classify gives the default class of a status code: the table of DESIGN section 6.
func Classify(status int) Class {
	switch status {
	// The refusals that ask for the same request again: after a credential (401,
	// 407), with a whole request (408), outside early data (425), later (429).
	// Each is by its definition an answer given instead of processing.
	case 401, 407, 408, 425, 429:
		return ClassNotApplied
	}
	// 1xx is no final answer and 600 upwards means nothing anyone agreed on. 5xx
	// says that something broke, not when: a 503 before the work and a 504 after
	// the commit look alike from here.
	if 200 <= status && status <= 499 {
		return ClassFinal
	}
	return ClassUnknown
}

package keystore

import "fmt"

// Claim is what a request that brings an existing key is entitled to.
type Claim uint8

const (
	// ClaimRefuse is the zero value and never decided: a bug refuses.
	ClaimRefuse Claim = iota
	// ClaimConflict: the key belongs to another method, target or payload.
	ClaimConflict
	// ClaimTakeOver: nothing was sent and nobody is at it; the request may go on.
	ClaimTakeOver
	// ClaimInFlight: a living owner is at it; wait, or come back.
	ClaimInFlight
	// ClaimUnknown: sent, outcome not known; see the recovery table.
	ClaimUnknown
	// ClaimReplay: answer with the recorded response.
	ClaimReplay
	// ClaimNotRetained: completed, but the body was too large to keep.
	ClaimNotRetained
	// ClaimExpired: completed long ago; only the tombstone is left.
	ClaimExpired
	// ClaimAbandoned: settled as not to be sent.
	ClaimAbandoned
)

var claimNames = [...]string{"refuse", "conflict", "take_over", "in_flight", "unknown", "replay", "not_retained", "expired", "abandoned"}

// String returns a short name for logs.
func (c Claim) String() string {
	if int(c) < len(claimNames) {
		return claimNames[c]
	}
	return fmt.Sprintf("claim(%d)", uint8(c))
}

// Decide says what a request with the given fingerprint may do about r at the
// store's moment now. The fingerprint is compared first, in every state: a key
// that belongs to another payload learns nothing else.
func Decide(r *Record, fingerprint string, now Instant, gone OwnerGone) Claim {
	if r.Fingerprint != fingerprint {
		return ClaimConflict
	}
	v := r.Reads(now, gone)
	switch v.State {
	case Reserved:
		if v.Free {
			return ClaimTakeOver
		}
		return ClaimInFlight
	case Dispatched:
		return ClaimInFlight
	case Unknown:
		return ClaimUnknown
	case Completed:
		switch {
		case v.Tombstone:
			return ClaimExpired
		case r.Outcome == nil || !r.Outcome.Retained:
			return ClaimNotRetained
		}
		return ClaimReplay
	case Abandoned:
		return ClaimAbandoned
	}
	return ClaimRefuse
}

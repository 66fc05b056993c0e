package keystore

import "time"

// Write is one change of one record, as [Next] makes it and a [Store] carries
// it out. It says everything a store has to know; a store never looks inside
// Record for rules.
type Write struct {
	// Record is the record after the write. Its Version is the version this
	// write makes: 1 for an insert, the seen version plus one for a swap.
	// Deadline and Expires in it are not set; the durations below are.
	Record Record

	// DeadlineIn and ExpiresIn are added to the store's clock at the moment of
	// the write; zero leaves the instant at zero.
	DeadlineIn time.Duration
	ExpiresIn  time.Duration

	// BodyOp says what happens to the response body stored beside the record.
	BodyOp BodyOp
	Body   []byte

	// Guard, when set, must hold by the store's clock in the same atomic step.
	Guard *Guard
	// BeforeSend says that an effect follows a successful write: a store that can
	// wait for replicas does so before it reports success.
	BeforeSend bool
}

// BodyOp is what a write does to the stored response body.
type BodyOp uint8

// The body operations.
const (
	BodyKeep BodyOp = iota
	BodySet
	BodyDrop
)

// Guard is a condition on a run's lease.
type Guard struct {
	Run   string
	Token uint64
	// External: the token is not one of ours. It must be at least the highest
	// seen for the run, and raises it. Otherwise the run's lease must be live by
	// the store's clock and carry exactly Token.
	External bool
}

// Stamped returns the record as it stands after the store carried the write out
// at the moment at.
func (w *Write) Stamped(at Instant) Record {
	r := w.Record
	r.Deadline, r.Expires = 0, 0
	if w.DeadlineIn > 0 {
		r.Deadline = at.Add(w.DeadlineIn)
	}
	if w.ExpiresIn > 0 {
		r.Expires = at.Add(w.ExpiresIn)
	}
	r.stamp(at)
	return r
}

// stamp puts the store's moment where the writer left StampNow.
func (r *Record) stamp(at Instant) {
	r.UpdatedAt = at
	r.ReservedAt = r.ReservedAt.stamped(at)
	r.DispatchedAt = r.DispatchedAt.stamped(at)
	r.FirstSentAt = r.FirstSentAt.stamped(at)
	r.SettledAt = r.SettledAt.stamped(at)
	if n := len(r.History); n > 0 && r.History[n-1].At == StampNow {
		h := append([]Transition(nil), r.History...)
		h[n-1].At = at
		r.History = h
	}
	if n := len(r.Evidence); n > 0 && r.Evidence[n-1].At == StampNow {
		e := append([]Evidence(nil), r.Evidence...)
		e[n-1].At = at
		r.Evidence = e
	}
}

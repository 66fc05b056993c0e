package keystore

import (
	"encoding/json"
	"fmt"
)

// stored is the form in which a record lies in a store, apart from the columns
// of [Columns]. It is a separate type from Record so that the API can change
// without the data.
//
// Compatibility: fields may be added, and are ignored by versions that do not
// know them; a field's name and meaning never change. What cannot be read
// safely by an older version raises Format, and [Decode] refuses it.
type stored struct {
	Format      int               `json:"f"`
	Operation   string            `json:"op"`
	Fingerprint string            `json:"fp"`
	Method      string            `json:"m"`
	Target      Target            `json:"t"`
	Route       string            `json:"rt,omitempty"`
	Derived     bool              `json:"dk,omitempty"`
	Attempt     int               `json:"an"`
	AttemptID   string            `json:"ai,omitempty"`
	Owner       string            `json:"ow,omitempty"`
	Lease       *LeaseRef         `json:"ls,omitempty"`
	Reserved    int64             `json:"ra,omitempty"`
	Dispatched  int64             `json:"da,omitempty"`
	Settled     int64             `json:"sa,omitempty"`
	Outcome     *Outcome          `json:"oc,omitempty"`
	Tombstone   bool              `json:"tb,omitempty"`
	Captured    map[string]string `json:"cp,omitempty"`
	History     []storedStep      `json:"h,omitempty"`
	Evidence    []storedNote      `json:"ev,omitempty"`
}

type storedStep struct {
	Version uint64    `json:"v"`
	At      int64     `json:"at"`
	From    State     `json:"f"`
	To      State     `json:"t"`
	Event   EventKind `json:"e"`
	By      string    `json:"by"`
	Attempt string    `json:"a,omitempty"`
	Why     string    `json:"w,omitempty"`
}

type storedNote struct {
	At      int64  `json:"at"`
	Attempt string `json:"a,omitempty"`
	By      string `json:"by"`
	Status  int    `json:"s,omitempty"`
	Why     string `json:"w,omitempty"`
}

// format is the version of the stored form that this code writes.
const format = 1

// Columns are the parts of a record that a store keeps by themselves, because
// it compares or sorts by them.
type Columns struct {
	Version  uint64
	Writer   string
	State    State
	Updated  Instant
	Deadline Instant
	Expires  Instant
}

// Encode returns the stored form of r without its [Columns]. Instants that are
// [StampNow] stay so in it: the moment of the write is the Updated column, and
// [Decode] puts it back.
func Encode(r *Record) []byte {
	s := stored{
		Format: format, Operation: r.Operation, Fingerprint: r.Fingerprint, Method: r.Method, Target: r.Target,
		Route: r.Route, Derived: r.Derived, Attempt: r.Attempt, AttemptID: r.AttemptID, Owner: r.Owner, Lease: r.Lease,
		Reserved: int64(r.ReservedAt), Dispatched: int64(r.DispatchedAt), Settled: int64(r.SettledAt),
		Outcome: r.Outcome, Tombstone: r.Tombstone, Captured: r.Captured,
	}
	if len(r.History) > 0 {
		s.History = make([]storedStep, len(r.History))
		for i, h := range r.History {
			s.History[i] = storedStep{h.Version, int64(h.At), h.From, h.To, h.Event, h.By, h.Attempt, h.Why}
		}
	}
	for _, e := range r.Evidence {
		s.Evidence = append(s.Evidence, storedNote{int64(e.At), e.Attempt, e.By, e.Status, e.Why})
	}
	b, err := json.Marshal(&s)
	if err != nil {
		// unreachable: stored has only types that always marshal.
		panic("keystore: " + err.Error())
	}
	return b
}

// Decode is the inverse of [Encode]. It refuses a form that is damaged or was
// written by a later version that knows this one cannot read it.
func Decode(id ID, c Columns, b []byte) (Record, error) {
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return Record{}, fmt.Errorf("keystore: the record of operation %q in scope %q is damaged: %w", id.Key, id.Scope, err)
	}
	if s.Format != format {
		return Record{}, fmt.Errorf("keystore: the record of operation %q in scope %q has stored form %d and this version reads %d; run the version of Fencepost that wrote it", id.Key, id.Scope, s.Format, format)
	}
	if c.State < Reserved || c.State > Abandoned {
		return Record{}, fmt.Errorf("keystore: the record of operation %q in scope %q has no valid state (%d)", id.Key, id.Scope, c.State)
	}
	r := Record{
		ID: id, Operation: s.Operation, Version: c.Version, Writer: c.Writer, Fingerprint: s.Fingerprint,
		Method: s.Method, Target: s.Target, Route: s.Route, Derived: s.Derived, State: c.State,
		Attempt: s.Attempt, AttemptID: s.AttemptID, Owner: s.Owner, Lease: s.Lease,
		ReservedAt: Instant(s.Reserved), DispatchedAt: Instant(s.Dispatched), SettledAt: Instant(s.Settled),
		Deadline: c.Deadline, Expires: c.Expires,
		Outcome: s.Outcome, Tombstone: s.Tombstone, Captured: s.Captured,
	}
	if len(s.History) > 0 {
		r.History = make([]Transition, len(s.History))
		for i, h := range s.History {
			r.History[i] = Transition{h.Version, Instant(h.At), h.From, h.To, h.Event, h.By, h.Attempt, h.Why}
		}
	}
	for _, e := range s.Evidence {
		r.Evidence = append(r.Evidence, Evidence{Instant(e.At), e.Attempt, e.By, e.Status, e.Why})
	}
	r.stamp(c.Updated)
	return r, nil
}

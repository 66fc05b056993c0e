package keystore

// View is how a record is to be understood at a moment, which may be further
// along than what was last written.
type View struct {
	// State is the state as read.
	State State
	// Free says that a Reserved operation has no living owner: whoever brings
	// the same key and payload may take it over and send.
	Free bool
	// Tombstone says that the response is past its retention, dropped or not.
	Tombstone bool
}

// OwnerGone tells whether an instance is known to be dead. A ledger with one
// process knows that every other owner is; a shared one never does and waits
// for the deadline.
type OwnerGone func(owner string) bool

// Reads returns how the record is to be understood at the store's moment now.
// A nil gone means that no owner is known to be dead.
func (r *Record) Reads(now Instant, gone OwnerGone) View {
	v := View{State: r.State}
	dead := r.Owner == "" || r.Deadline.Reached(now) || (gone != nil && gone(r.Owner))
	switch r.State {
	case Reserved:
		v.Free = dead
	case Dispatched:
		// A crash needs nobody to notice it: silence past the deadline is doubt.
		if dead {
			v.State = Unknown
		}
	case Completed, Abandoned:
		v.Tombstone = r.Tombstone || r.Expires.Reached(now)
	}
	return v
}

// Forgettable reports whether nothing is lost by deleting the record: its time
// is over, and either nothing was ever sent or it is a tombstone.
func (r *Record) Forgettable(now Instant) bool {
	if !r.Expires.Reached(now) {
		return false
	}
	switch r.State {
	case Reserved:
		return r.Owner == "" || r.Deadline.Reached(now)
	case Completed, Abandoned:
		return r.Tombstone
	default:
		return false
	}
}

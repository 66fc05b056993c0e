package keystore

import "fmt"

// State says how far an operation got. docs/states.md draws the arrows.
type State uint8

const (
	// StateNone is the zero value: no record. It is never stored.
	StateNone State = iota

	// Reserved: the intent is written, nothing was sent. Followed by Dispatched,
	// by Reserved again when the owner lets go or another takes over, or by
	// nothing: a reservation nobody claims is forgotten after its retention.
	Reserved

	// Dispatched: bytes may have left. Only the attempt that wrote it may settle
	// it, and past its deadline it reads as Unknown. Never expires.
	Dispatched

	// Unknown: sent, and no authoritative outcome. Left only by evidence or by an
	// operator. Never expires, and is never retried on its own.
	Unknown

	// Completed: the outcome is known and answers every duplicate. Terminal;
	// after its retention only a tombstone is left.
	Completed

	// Abandoned: an operator decided that it is not to be sent (again). Terminal.
	Abandoned
)

var stateNames = [...]string{"none", "reserved", "dispatched", "unknown", "completed", "abandoned"}

// String returns the name used on the wire and in stored records.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ParseState is the inverse of String for the five storable states.
func ParseState(name string) (State, error) {
	for s := Reserved; s <= Abandoned; s++ {
		if stateNames[s] == name {
			return s, nil
		}
	}
	return StateNone, fmt.Errorf("keystore: no state is called %q; use reserved, dispatched, unknown, completed or abandoned", name)
}

// Settled reports whether nothing may follow but forgetting.
func (s State) Settled() bool { return s == Completed || s == Abandoned }

// MarshalText writes the wire name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the wire name, and "none" as it stands in the first line
// of a history.
func (s *State) UnmarshalText(b []byte) error {
	if string(b) == stateNames[StateNone] {
		*s = StateNone
		return nil
	}
	v, err := ParseState(string(b))
	*s = v
	return err
}

package keystore

import (
	"encoding/json"
	"time"
)

// Instant is a moment by the store's clock, in milliseconds since the Unix
// epoch, UTC. The zero Instant means "not happened" or "never".
type Instant int64

// StampNow stands in a record that is about to be written for "the moment of
// this write". The store never returns it: [Decode] and [Write.Stamped] put the
// store's clock in its place.
const StampNow Instant = -1

// IsZero reports whether the moment has not happened or never will.
func (i Instant) IsZero() bool { return i == 0 }

// Add returns the moment d later, in whole milliseconds.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Milliseconds()) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i-j) * time.Millisecond }

// Reached reports whether now is at or past i. The zero Instant is never reached.
func (i Instant) Reached(now Instant) bool { return i != 0 && now >= i }

// Time returns the moment in UTC, or the zero time for the zero Instant.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).UTC()
}

// String returns RFC 3339 with milliseconds, or "" for the zero Instant.
func (i Instant) String() string {
	if i == 0 {
		return ""
	}
	return i.Time().Format("2006-01-02T15:04:05.000Z07:00")
}

// MarshalJSON writes the RFC 3339 form, as it stands on the wire; null for zero.
func (i Instant) MarshalJSON() ([]byte, error) {
	if i == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(i.String())
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (i *Instant) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s == nil {
		*i = 0
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, *s)
	*i = InstantOf(t)
	return err
}

// InstantOf returns the Instant of a wall-clock time. Only stores, whose clock
// it is, have a use for it.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

func (i Instant) stamped(at Instant) Instant {
	if i == StampNow {
		return at
	}
	return i
}

package proxy

import (
	"strconv"
	"testing"
	"time"

	"fencepost/keystore"
)

// TestTheTallyForgetsWhatWasSettled: a long run must still name what is open at its end.
func TestTheTallyForgetsWhatWasSettled(t *testing.T) {
	y := newTally()
	note := func(key string, s keystore.State) {
		id := keystore.ID{Scope: "default", Key: key}
		y.governed(&line{upstream: time.Second, code: codeUnknown, rec: keystore.Record{ID: id, State: s}}, id)
	}
	for i := range 2 * maxUnknown {
		note(strconv.Itoa(i), keystore.Unknown)
		note(strconv.Itoa(i), keystore.Completed)
	}
	for range 2 {
		note("open", keystore.Unknown)
		note("open", keystore.Completed)
	}
	note("open", keystore.Unknown)
	got := (&Proxy{tally: y}).Tally().Unknown
	if len(got) != 1 || got[0].Key != "open" {
		t.Errorf("%+v", got)
	}
}

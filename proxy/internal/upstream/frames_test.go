package upstream

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

type seen struct {
	kind         byte
	stream, last uint32
}

func TestFramesAreFoundHoweverTheBytesAreCut(t *testing.T) {
	const none = math.MaxUint32
	var in []byte
	frame := func(kind byte, stream uint32, payload ...byte) {
		in = append(in, 0, 0, byte(len(payload)), kind, 0, byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
		in = append(in, payload...)
	}
	frame(frameSettings, 0)
	frame(frameHeaders, 1, 1, 2, 3)
	frame(0, 1<<31|1, make([]byte, 200)...) // the reserved bit is not part of the stream
	frame(frameGoAway, 0, 0x80, 0, 0, 5, 0, 0, 0, 0, 'b', 'y', 'e')
	frame(frameGoAway, 0, 0, 0, 0)       // too short: it says nothing
	frame(frameGoAway, 0, 0, 0, 0, 0, 1) // so is this
	frame(frameGoAway, 7, 0, 0, 0, 3, 0, 0, 0, 0)
	frame(frameHeaders, 9)
	want := []seen{
		{frameSettings, 0, none}, {frameHeaders, 1, none}, {0, 1, none}, {frameGoAway, 0, 5},
		{frameGoAway, 0, none}, {frameGoAway, 0, none}, {frameGoAway, 7, 3}, {frameHeaders, 9, none},
	}
	for size := 1; size <= len(in); size++ {
		var f frames
		var got []seen
		for piece := range slices.Chunk(in, size) {
			f.scan(piece, func(kind byte, stream, last uint32) { got = append(got, seen{kind, stream, last}) })
		}
		if !slices.Equal(got, want) {
			t.Fatalf("in pieces of %d: %v\nwant %v", size, got, want)
		}
	}
}

func TestOnlyAnHTTP2PeersGoAwayCounts(t *testing.T) {
	goAway := []byte{0, 0, 8, frameGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}
	onStream := slices.Clone(goAway)
	onStream[8] = 3
	settings := []byte{0, 0, 0, frameSettings, 0, 0, 0, 0, 0}
	for name, c := range map[string]struct {
		in   []byte
		want bool
	}{
		"after SETTINGS":    {slices.Concat(settings, goAway), true},
		"without SETTINGS":  {goAway, false},
		"on a stream":       {slices.Concat(settings, onStream), false},
		"after other bytes": {slices.Concat([]byte{0, 0, 0, 9, 0, 0, 0, 0, 0}, settings, goAway), false},
	} {
		w := &wire{}
		w.multiplex()
		if got := w.mux.heard(c.in); got != c.want || got != (w.mux.lastAccepted.Load() == 1) {
			t.Errorf("%s: %v, last %d", name, got, w.mux.lastAccepted.Load())
		}
	}
}

func TestAStreamIsClaimedOnce(t *testing.T) {
	w := &wire{}
	w.multiplex()
	w.mux.out.skip = 0
	headers := func(stream byte) { w.mux.said([]byte{0, 0, 0, frameHeaders, 4, 0, 0, 0, stream}) }
	if got := w.mux.claim(); got != 0 {
		t.Errorf("claimed %d before any", got)
	}
	headers(1)
	if got := w.mux.claim(); got != 1 {
		t.Errorf("claimed %d, want 1", got)
	}
	headers(1) // trailers
	if got := w.mux.claim(); got != 0 {
		t.Errorf("claimed %d again", got)
	}
	headers(3)
	if got := w.mux.claim(); got != 3 {
		t.Errorf("claimed %d, want 3", got)
	}
}

func TestALaterGoAwayTakesNothingBack(t *testing.T) {
	w := &wire{}
	w.multiplex()
	goAway := func(last byte) {
		w.mux.heard([]byte{0, 0, 8, frameGoAway, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0})
	}
	w.mux.heard([]byte{0, 0, 0, frameSettings, 0, 0, 0, 0, 0})
	for _, c := range []struct {
		last byte
		want uint32
	}{{7, 7}, {3, 3}, {9, 3}} {
		goAway(c.last)
		if got := w.mux.lastAccepted.Load(); got != c.want {
			t.Errorf("after %d: %d, want %d", c.last, got, c.want)
		}
	}
}

// alike answers As in the way of net/http's own stream error.
type alike struct{ streamError }

func (a alike) As(target any) bool {
	s, ok := target.(*streamError)
	if ok {
		*s = a.streamError
	}
	return ok
}

func TestOnlyThePeersRefusedStreamIsARefusal(t *testing.T) {
	peer := errors.New("received from peer")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{alike{streamError{StreamID: 1, Code: codeRefusedStream, Cause: peer}}, true},
		{fmt.Errorf("wrapped: %w", alike{streamError{StreamID: 1, Code: codeRefusedStream, Cause: peer}}), true},
		{alike{streamError{StreamID: 1, Code: codeRefusedStream}}, false},
		{alike{streamError{StreamID: 1, Code: codeProtocol, Cause: peer}}, false},
		{errors.New("stream error: stream ID 1; REFUSED_STREAM; received from peer"), false}, // texts decide nothing
	} {
		if got := refused(c.err); got != c.want {
			t.Errorf("%+v: %v", c.err, got)
		}
	}
}

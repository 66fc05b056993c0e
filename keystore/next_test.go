package keystore

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"testing"
	"time"
)

const testNow Instant = 1_000_000

// made brings a record to a state by the transition function alone.
func made(t *testing.T, steps ...Event) Record {
	t.Helper()
	var cur *Record
	for i, ev := range steps {
		ev.Writer, ev.By = fmt.Sprint("w", i), "me"
		w, no := Next(cur, ev, testNow, nil)
		if no != Allowed {
			t.Fatalf("step %d (%v): %s", i, ev.Kind, no)
		}
		r := w.Stamped(testNow)
		cur = &r
	}
	return *cur
}

func newReserve() Event {
	return Event{Kind: Reserve, Attempt: "a1", Silence: time.Minute, Keep: time.Hour,
		New: &Record{ID: ID{"s", "k"}, Operation: "op", Fingerprint: "fp", Method: "POST"}}
}

var (
	evMark     = Event{Kind: Mark, Attempt: "a1", Silence: time.Minute}
	evDoubt    = Event{Kind: Doubt, Attempt: "a1", Why: "timeout"}
	evComplete = Event{Kind: Complete, Attempt: "a1", Keep: time.Hour, Outcome: &Outcome{Source: FromResponse, Status: 200, Retained: true}}
	evRelease  = Event{Kind: Release, Attempt: "a1", Keep: time.Hour}
	evAbandon  = Event{Kind: Abandon, Keep: time.Hour}
)

// TestEveryEventInEveryState is the whole transition table: which event is let
// through in which reading of a record, and what it makes of it.
func TestEveryEventInEveryState(t *testing.T) {
	long := testNow.Add(2 * time.Hour) // past every deadline and retention
	states := []struct {
		name string
		rec  *Record
		now  Instant
	}{
		{"none", nil, testNow},
		{"reserved", ptr(made(t, newReserve())), testNow},
		{"reserved, lapsed", ptr(made(t, newReserve())), long},
		{"reserved, free", ptr(made(t, newReserve(), evRelease)), testNow},
		{"dispatched", ptr(made(t, newReserve(), evMark)), testNow},
		{"dispatched, lapsed", ptr(made(t, newReserve(), evMark)), long},
		{"unknown", ptr(made(t, newReserve(), evMark, evDoubt)), testNow},
		{"completed", ptr(made(t, newReserve(), evMark, evComplete)), testNow},
		{"completed, expired", ptr(made(t, newReserve(), evMark, evComplete)), long},
		{"abandoned", ptr(made(t, newReserve(), evMark, evDoubt, evAbandon)), testNow},
		{"abandoned, expired", ptr(made(t, newReserve(), evMark, evDoubt, evAbandon)), long},
		{"resent", ptr(resent(t)), testNow},
		{"resent, lapsed", ptr(resent(t)), long},
		{"resent, unknown", ptr(resent(t, evDoubt)), testNow},
	}
	out := &Outcome{Source: FromOperator, Status: 201, Retained: true}
	events := []Event{
		newReserve(),
		{Kind: TakeOver, Attempt: "a2", Silence: time.Minute, Keep: time.Hour},
		{Kind: Mark, Attempt: "a1", Silence: time.Minute},
		{Kind: Mark, Attempt: "other", Silence: time.Minute},
		{Kind: Extend, Attempt: "a1", Silence: time.Minute},
		{Kind: Complete, Attempt: "a1", Keep: time.Hour, Outcome: out},
		{Kind: Complete, Attempt: "other", Keep: time.Hour, Outcome: out},
		{Kind: Doubt, Attempt: "a1"},
		{Kind: Release, Attempt: "a1", Keep: time.Hour},
		{Kind: Release, Attempt: "other", Keep: time.Hour},
		{Kind: Confirm, Keep: time.Hour, Outcome: out},
		{Kind: Clear, Keep: time.Hour},
		{Kind: Resolve, Keep: time.Hour, Outcome: out},
		{Kind: Abandon, Keep: time.Hour},
		{Kind: Note, Attempt: "late"},
		{Kind: Bury, Keep: time.Hour},
		{Kind: Probe, Silence: time.Minute},
		{Kind: Probed, Silence: time.Minute},
		dispatch(),
		{Kind: Resend, Attempt: "a2", Silence: time.Minute},
		{Kind: Resend, Attempt: "a1", Silence: time.Minute},
		{Kind: EventNone},
	}
	// Rows: events as above. Columns: states as above. "-" is a refusal.
	table := [][]string{
		//                 none        reserved    lapsed      free        dispatched    lapsed        unknown     completed   expired     abandoned   expired     resent        lapsed        unknown
		/* reserve   */ {"reserved", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* take over */ {"-", "-", "reserved", "reserved", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* mark      */ {"-", "dispatched", "dispatched", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* ' another */ {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* extend    */ {"-", "reserved", "reserved", "-", "dispatched", "dispatched", "-", "-", "-", "-", "-", "dispatched", "dispatched", "-"},
		/* complete  */ {"-", "-", "-", "-", "completed", "completed", "completed", "-", "-", "-", "-", "completed", "completed", "completed"},
		/* ' another */ {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* doubt     */ {"-", "-", "-", "-", "unknown", "unknown", "-", "-", "-", "-", "-", "unknown", "unknown", "-"},
		/* release   */ {"-", "reserved", "reserved", "reserved", "reserved", "reserved", "reserved", "-", "-", "-", "-", "unknown", "unknown", "unknown"},
		/* ' another */ {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* confirm   */ {"-", "-", "-", "-", "-", "completed", "completed", "-", "-", "-", "-", "-", "completed", "completed"},
		/* clear     */ {"-", "-", "-", "-", "-", "reserved", "reserved", "-", "-", "-", "-", "-", "reserved", "reserved"},
		/* resolve   */ {"-", "-", "-", "-", "-", "completed", "completed", "-", "-", "-", "-", "-", "completed", "completed"},
		/* abandon   */ {"-", "-", "abandoned", "abandoned", "-", "abandoned", "abandoned", "-", "-", "-", "-", "-", "abandoned", "abandoned"},
		/* note      */ {"-", "reserved", "reserved", "reserved", "dispatched", "dispatched", "unknown", "completed", "completed", "abandoned", "abandoned", "dispatched", "dispatched", "unknown"},
		/* bury      */ {"-", "-", "-", "-", "-", "-", "-", "-", "completed", "-", "abandoned", "-", "-", "-"},
		/* probe     */ {"-", "-", "-", "-", "-", "unknown", "unknown", "-", "-", "-", "-", "-", "unknown", "unknown"},
		/* probed    */ {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* dispatch  */ {"dispatched", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* resend    */ {"-", "-", "-", "-", "-", "dispatched", "dispatched", "-", "-", "-", "-", "-", "dispatched", "dispatched"},
		/* ' itself  */ {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
		/* none      */ {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
	}
	for i, ev := range events {
		for j, st := range states {
			ev.Writer, ev.By = "w", "me"
			var before Record
			if st.rec != nil {
				before = *st.rec
			}
			w, no := Next(st.rec, ev, st.now, nil)
			got := "-"
			if no == Allowed {
				got = w.Record.State.String()
			}
			if got != table[i][j] {
				t.Errorf("%v by %q when %s: %s, want %s (%s)", ev.Kind, ev.Attempt, st.name, got, table[i][j], no)
			}
			if st.rec == nil {
				continue
			}
			if !reflect.DeepEqual(*st.rec, before) {
				t.Errorf("%v when %s changed its input", ev.Kind, st.name)
			}
			if no == Allowed && (w.Record.Version != st.rec.Version+1 || w.Record.Operation != "op" || w.Record.Fingerprint != "fp") {
				t.Errorf("%v when %s: %+v", ev.Kind, st.name, w.Record)
			}
		}
	}
}

// resent is an operation whose first attempt is in doubt and whose second, a1, is on
// its way, or has met with what comes.
func resent(t *testing.T, then ...Event) Record {
	first := newReserve()
	first.Attempt = "a0"
	return made(t, append([]Event{first, {Kind: Mark, Attempt: "a0", Silence: time.Minute}, {Kind: Doubt, Attempt: "a0"}, {Kind: Resend, Attempt: "a1", Silence: time.Minute, Why: "recognised"}}, then...)...)
}

// TestAResendSpeaksForItselfOnly: what it proves of itself proves nothing of the
// attempt before it, however often it is tried. Evidence about the effect settles both.
func TestAResendSpeaksForItselfOnly(t *testing.T) {
	r := resent(t)
	if r.State != Dispatched || r.Attempt != 2 || r.AttemptID != "a1" || r.Owner != "me" || !r.InDoubt || r.DispatchedAt != testNow || r.FirstSentAt != testNow || r.Expires != 0 || r.Deadline == 0 {
		t.Fatalf("%+v", r)
	}
	again := []Event{evRelease, {Kind: Resend, Attempt: "a2", Silence: time.Minute}, {Kind: Release, Attempt: "a2", Keep: time.Hour}}
	if r := resent(t, again...); r.State != Unknown || r.Owner != "" || r.Expires != 0 || r.Forgettable(testNow.Add(1e6*time.Hour)) {
		t.Errorf("%+v", r)
	}
	// A lookup's or an operator's word is about the effect: the next attempt begins anew.
	r = resent(t, evRelease, Event{Kind: Clear, Keep: time.Hour}, Event{Kind: TakeOver, Attempt: "a3", Silence: time.Minute, Keep: time.Hour},
		Event{Kind: Mark, Attempt: "a3", Silence: time.Minute}, Event{Kind: Release, Attempt: "a3", Keep: time.Hour})
	if r.State != Reserved || r.InDoubt {
		t.Errorf("%+v", r)
	}
	if r := resent(t, evComplete); r.State != Completed || r.InDoubt || r.Outcome.Source != FromResponse {
		t.Errorf("%+v", r)
	}
	// A late refusal leaves whoever is asking alone.
	probed := resent(t, evDoubt, Event{Kind: Probe, Silence: time.Minute})
	w, no := Next(&probed, Event{Kind: Release, Attempt: "a1", Writer: "w", By: "me", Keep: time.Hour}, testNow, nil)
	if no != Allowed || w.Record.Probing != "me" || w.DeadlineIn != time.Minute {
		t.Errorf("%s %+v", no, w)
	}
	// It is as much of a send as any other, and its lease is asked for.
	doubted := made(t, newReserve(), evMark, evDoubt)
	w, no = Next(&doubted, Event{Kind: Resend, Attempt: "a2", Writer: "w", By: "me", Silence: time.Minute, Lease: &LeaseRef{"run", 7}}, testNow, nil)
	if no != Allowed || !w.BeforeSend || w.Guard == nil || *w.Guard != (Guard{Run: "run", Token: 7}) || w.Record.Lease == nil {
		t.Errorf("%s %+v", no, w)
	}
	r = resent(t)
	got, err := Decode(r.ID, Columns{r.Version, r.Writer, r.State, r.UpdatedAt, r.Deadline, r.Expires}, Encode(&r))
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%v %+v", err, got)
	}
}

func ptr[T any](v T) *T { return &v }

func dispatch() Event {
	ev := newReserve()
	ev.Kind = Dispatch
	return ev
}

// TestADispatchIsAReservationAndAMark in one write: the same record but for its
// history, and as durable before the send.
func TestADispatchIsAReservationAndAMark(t *testing.T) {
	one, two := made(t, dispatch()), made(t, newReserve(), evMark)
	if len(one.History) != 1 || one.History[0].From != StateNone || one.History[0].To != Dispatched {
		t.Errorf("%+v", one.History)
	}
	one.History, two.History = nil, nil
	one.Version, one.Writer, two.Version, two.Writer = 0, "", 0, ""
	if !reflect.DeepEqual(one, two) {
		t.Errorf("\n%+v\n%+v", one, two)
	}
	ev := dispatch()
	ev.Writer, ev.By, ev.Lease = "w", "me", &LeaseRef{"r", 1}
	if w, no := Next(nil, ev, 0, nil); no != Allowed || !w.BeforeSend || w.Guard == nil || w.ExpiresIn != 0 {
		t.Errorf("%s %+v", no, w)
	}
}

func TestWhatWasSentNeverExpires(t *testing.T) {
	for _, r := range []Record{made(t, newReserve(), evMark), made(t, newReserve(), evMark, evDoubt)} {
		if !r.Expires.IsZero() || r.Forgettable(testNow.Add(1e6*time.Hour)) {
			t.Errorf("%v expires at %v", r.State, r.Expires)
		}
	}
}

func TestALateResponseIsCalledSo(t *testing.T) {
	r := made(t, newReserve(), evMark, evDoubt)
	ev := evComplete
	ev.Writer, ev.By = "w", "me"
	w, no := Next(&r, ev, testNow, nil)
	if no != Allowed || w.Record.Outcome.Source != FromLateResponse {
		t.Fatalf("%s: %+v", no, w.Record.Outcome)
	}
	r = made(t, newReserve(), evMark)
	if w, _ = Next(&r, ev, testNow, nil); w.Record.Outcome.Source != FromResponse {
		t.Fatalf("%+v", w.Record.Outcome)
	}
}

func TestASupersededAttemptCannotSettle(t *testing.T) {
	r := made(t, newReserve(), evRelease, Event{Kind: TakeOver, Attempt: "a2", Silence: time.Minute, Keep: time.Hour}, Event{Kind: Mark, Attempt: "a2", Silence: time.Minute})
	if r.Attempt != 2 {
		t.Fatalf("attempt %d", r.Attempt)
	}
	ev := evComplete
	ev.Writer, ev.By = "w", "me"
	if _, no := Next(&r, ev, testNow, nil); no != RefusedSuperseded {
		t.Fatalf("%s", no)
	}
}

func TestAKnownDeadOwnerNeedsNoDeadline(t *testing.T) {
	gone := func(o string) bool { return o == "me" }
	d := made(t, newReserve(), evMark)
	if v := d.Reads(testNow, gone); v.State != Unknown {
		t.Errorf("dispatched reads %v", v.State)
	}
	if v := d.Reads(testNow, nil); v.State != Dispatched {
		t.Errorf("dispatched of a living owner reads %v", v.State)
	}
	r := made(t, newReserve())
	if v := r.Reads(testNow, gone); !v.Free {
		t.Error("the reservation of a dead owner is held")
	}
}

func TestDecideComparesTheFingerprintInEveryState(t *testing.T) {
	for _, r := range []Record{
		made(t, newReserve()), made(t, newReserve(), evRelease), made(t, newReserve(), evMark), made(t, newReserve(), evMark, evDoubt),
		made(t, newReserve(), evMark, evComplete), made(t, newReserve(), evMark, evDoubt, evAbandon),
	} {
		if c := Decide(&r, "other", testNow, nil); c != ClaimConflict {
			t.Errorf("%v: %v", r.State, c)
		}
	}
}

func TestDecide(t *testing.T) {
	large := evComplete
	large.Outcome = &Outcome{Status: 200}
	long := testNow.Add(2 * time.Hour)
	for _, c := range []struct {
		name string
		rec  Record
		now  Instant
		want Claim
	}{
		{"held reservation", made(t, newReserve()), testNow, ClaimInFlight},
		{"lapsed reservation", made(t, newReserve()), long, ClaimTakeOver},
		{"free reservation", made(t, newReserve(), evRelease), testNow, ClaimTakeOver},
		{"in flight", made(t, newReserve(), evMark), testNow, ClaimInFlight},
		{"silent past its deadline", made(t, newReserve(), evMark), long, ClaimUnknown},
		{"unknown", made(t, newReserve(), evMark, evDoubt), long, ClaimUnknown},
		{"completed", made(t, newReserve(), evMark, evComplete), testNow, ClaimReplay},
		{"completed, too large to keep", made(t, newReserve(), evMark, large), testNow, ClaimNotRetained},
		{"completed long ago, not swept", made(t, newReserve(), evMark, evComplete), long, ClaimExpired},
		{"abandoned", made(t, newReserve(), evMark, evDoubt, evAbandon), testNow, ClaimAbandoned},
	} {
		if got := Decide(&c.rec, "fp", c.now, nil); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOneProbeAtATime(t *testing.T) {
	probe := func(r Record, kind EventKind, by string, now Instant) (Record, Refusal) {
		w, no := Next(&r, Event{Kind: kind, Writer: "w", By: by, Silence: time.Minute, Why: "neither"}, now, nil)
		if no != Allowed {
			return r, no
		}
		return w.Stamped(now), no
	}
	r := made(t, newReserve(), evMark, evDoubt)
	if r.FirstSentAt != testNow {
		t.Errorf("first sent at %v", r.FirstSentAt)
	}
	if _, no := Next(&r, Event{Kind: Probe, Writer: "w", By: "one", Silence: time.Minute, Due: true}, testNow, nil); no != Allowed {
		t.Errorf("the first look: %s", no)
	}
	r, no := probe(r, Probe, "one", testNow)
	if no != Allowed || r.Probing != "one" || r.State != Unknown {
		t.Fatalf("%s %+v", no, r)
	}
	if _, no := probe(r, Probe, "two", testNow.Add(59*time.Second)); no != RefusedHeld {
		t.Errorf("two at once: %s", no)
	}
	if _, no := probe(r, Probed, "two", testNow); no != RefusedSuperseded {
		t.Errorf("another's probe ended: %s", no)
	}
	if taken, no := probe(r, Probe, "two", testNow.Add(time.Minute)); no != Allowed || taken.Probing != "two" {
		t.Errorf("a prober that died holds it for ever: %s", no)
	}
	r, no = probe(r, Probed, "one", testNow)
	if no != Allowed || r.Probing != "" || r.Probes != 1 || len(r.Evidence) != 1 || r.Evidence[0].Why != "neither" || r.Deadline != testNow.Add(time.Minute) {
		t.Errorf("%s %+v", no, r)
	}
	// The schedule waits its turn, whatever it had read; a person need not.
	due := func(now Instant) Refusal {
		_, no := Next(&r, Event{Kind: Probe, Writer: "w", By: "two", Silence: time.Minute, Due: true}, now, nil)
		return no
	}
	if no := due(testNow.Add(59 * time.Second)); no != RefusedNotDue {
		t.Errorf("the schedule asks before its time: %s", no)
	}
	if no := due(testNow.Add(time.Minute)); no != Allowed {
		t.Errorf("the schedule does not ask in time: %s", no)
	}
	if _, no := probe(r, Probe, "two", testNow.Add(59*time.Second)); no != Allowed {
		t.Errorf("only the schedule can ask: %s", no)
	}
	if len(r.History) != 3 {
		t.Errorf("probing fills the history: %+v", r.History)
	}
	// A prober that found the owner silent says so.
	d := made(t, newReserve(), evMark)
	d, no = probe(d, Probe, "one", testNow.Add(2*time.Minute))
	if no != Allowed || d.State != Unknown || d.Owner != "" || d.History[2].Why != "its owner fell silent after the send" {
		t.Errorf("%s %+v", no, d)
	}
	// A settlement ends the probe.
	w, no := Next(&r, Event{Kind: Clear, Writer: "w", By: "x", Keep: time.Hour}, testNow, nil)
	if no != Allowed || w.Record.Probes != 0 || w.Record.FirstSentAt != testNow {
		t.Errorf("%s %+v", no, w.Record)
	}
}

func TestHistoryIsBoundedAndKeepsItsOrigin(t *testing.T) {
	r := made(t, newReserve())
	for i := range 100 {
		for _, ev := range []Event{{Kind: Release, Attempt: r.AttemptID, Keep: time.Hour}, {Kind: TakeOver, Attempt: fmt.Sprint("b", i), Keep: time.Hour, Silence: time.Minute}} {
			ev.Writer, ev.By = "w", "me"
			w, no := Next(&r, ev, testNow, nil)
			if no != Allowed {
				t.Fatal(no)
			}
			r = w.Stamped(testNow)
		}
	}
	if len(r.History) != MaxHistory || r.History[0].Event != Reserve || r.History[MaxHistory-1].Version != r.Version {
		t.Fatalf("%d lines, first %v", len(r.History), r.History[0])
	}
	for i := 2; i < len(r.History); i++ {
		if r.History[i].Version != r.History[i-1].Version+1 {
			t.Fatalf("a gap at %d: %+v", i, r.History)
		}
	}
}

func TestStoredFormComesBackWhole(t *testing.T) {
	ev := newReserve()
	ev.Lease = &LeaseRef{Run: "r", Token: 1<<63 + 1}
	ev.New.Captured = map[string]string{"a": "b", "c": ""}
	r := made(t, ev, Event{Kind: Mark, Attempt: "a1", Silence: time.Minute}, Event{Kind: Note, Attempt: "x", Why: "y", Outcome: &Outcome{Status: 500}}, evComplete)
	got, err := Decode(r.ID, Columns{r.Version, r.Writer, r.State, r.UpdatedAt, r.Deadline, r.Expires}, Encode(&r))
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Fatalf("%v\n got %+v\nwant %+v", err, got, r)
	}
}

// TestStoredFormIsReadableForEver pins the bytes that older versions wrote. A
// change that breaks it breaks every ledger there is.
func TestStoredFormIsReadableForEver(t *testing.T) {
	old, err := hex.DecodeString("080112026f701a0266702204504f53542a0568747470733201683a022f705801620261316a036d6521800101b20111080110012001280132036d65213a026131" +
		"f8ff0305") // and a field that this version does not know
	if err != nil {
		t.Fatal(err)
	}
	r, err := Decode(ID{"s", "k"}, Columns{1, "w", Reserved, 5, 6, 7}, old)
	if err != nil {
		t.Fatal(err)
	}
	if r.Operation != "op" || r.Fingerprint != "fp" || r.Method != "POST" || r.Target != (Target{Scheme: "https", Host: "h", Path: "/p"}) || r.Attempt != 1 || r.AttemptID != "a1" || r.Owner != "me!" {
		t.Errorf("%+v", r)
	}
	if r.ReservedAt != 5 || r.History[0].At != 5 || r.Deadline != 6 || r.Expires != 7 || r.History[0].Event != Reserve || r.History[0].To != Reserved || r.History[0].By != "me!" {
		t.Errorf("%+v", r)
	}
}

func TestADamagedFormIsRefused(t *testing.T) {
	r := made(t, newReserve(), evMark, evComplete)
	whole := Encode(&r)
	c := Columns{3, "w", Completed, 5, 0, 7}
	for n := range whole {
		// Every cut is noticed, or reads as a record with less in it; none panics.
		_, _ = Decode(r.ID, c, whole[:n])
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "JSON": []byte(`{"f":1}`), "zeros": make([]byte, 100),
		"no format": whole[2:], "a later format": append([]byte{8, format + 1}, whole[2:]...),
	} {
		if _, err := Decode(r.ID, c, b); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	if _, err := Decode(r.ID, Columns{State: 9}, whole); err == nil {
		t.Error("a state that does not exist was read")
	}
}

func FuzzDecode(f *testing.F) {
	r := completedRecord(f)
	f.Add(Encode(&r))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Columns{1, "w", Completed, 5, 6, 7}
		r, err := Decode(ID{"s", "k"}, c, b)
		if err != nil {
			return
		}
		again, err := Decode(ID{"s", "k"}, c, Encode(&r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%v\n%+v\n%+v", err, r, again)
		}
	})
}

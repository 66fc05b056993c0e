package policy

import (
	"testing"
	"time"
)

// TestRecoveryTable is DESIGN section 5, row by row.
func TestRecoveryTable(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Situation
		want Action
	}{
		{"reserved: send with the original key", Situation{}, ActionSend},
		{"reserved, owner alive: wait", Situation{Alive: true}, ActionWait},
		{"dispatched, owner alive: wait", Situation{Sent: true, Alive: true}, ActionWait},
		{"unknown, nobody asked: stay", Situation{Sent: true}, ActionStay},
		{"confirmed: record", Situation{Sent: true, Evidence: EvidenceConfirmed}, ActionRecord},
		{"not found, lookup complete, settled: release", Situation{Sent: true, Evidence: EvidenceNotFound, Complete: true, Settle: time.Minute, SinceSend: time.Minute}, ActionRelease},
		{"not found, too early to be believed: stay", Situation{Sent: true, Evidence: EvidenceNotFound, Complete: true, Settle: time.Minute, SinceSend: time.Minute - 1}, ActionStay},
		{"not found, lookup not complete: stay", Situation{Sent: true, Evidence: EvidenceNotFound, SinceSend: time.Hour}, ActionStay},
		{"ambiguous: stay", Situation{Sent: true, Evidence: EvidenceAmbiguous, Complete: true, SinceSend: time.Hour}, ActionStay},
		{"unavailable: stay", Situation{Sent: true, Evidence: EvidenceUnavailable, Complete: true, SinceSend: time.Hour}, ActionStay},
		{"the upstream deduplicates, in time: resend", Situation{Sent: true, Deduplicates: time.Hour, SinceFirst: time.Hour - 1}, ActionResend},
		{"the upstream deduplicated, too late: stay", Situation{Sent: true, Deduplicates: time.Hour, SinceFirst: time.Hour}, ActionStay},
		{"confirmed beats a resend", Situation{Sent: true, Evidence: EvidenceConfirmed, Deduplicates: time.Hour}, ActionRecord},
	} {
		if got := Recover(c.s); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestRecoveryLaws holds for every combination of evidence and guarantees.
func TestRecoveryLaws(t *testing.T) {
	n := 0
	for _, sent := range []bool{false, true} {
		for _, alive := range []bool{false, true} {
			for e := EvidenceNone; e <= EvidenceUnavailable; e++ {
				for _, complete := range []bool{false, true} {
					for _, since := range []time.Duration{0, time.Minute, time.Hour} {
						for _, dedup := range []time.Duration{0, time.Minute} {
							for _, first := range []time.Duration{0, 2 * time.Minute} {
								n++
								s := Situation{Sent: sent, Alive: alive, Evidence: e, Complete: complete, Settle: time.Minute, SinceSend: since, Deduplicates: dedup, SinceFirst: first}
								a := Recover(s)
								proof := e == EvidenceNotFound && complete && since >= time.Minute
								switch {
								case alive && a != ActionWait:
									t.Errorf("%+v: %v while the owner may live", s, a)
								case !alive && !sent && a != ActionSend:
									t.Errorf("%+v: %v though nothing was sent", s, a)
								case a == ActionSend && sent:
									t.Errorf("%+v: sent again as if it were new", s)
								case a == ActionRelease && !proof:
									t.Errorf("%+v: released without proof", s)
								case a == ActionResend && (dedup == 0 || first >= dedup):
									t.Errorf("%+v: sent again to an upstream that forgot", s)
								case a == ActionRecord && e != EvidenceConfirmed:
									t.Errorf("%+v: recorded what nobody confirmed", s)
								}
							}
						}
					}
				}
			}
		}
	}
	if n != 480 {
		t.Errorf("%d combinations", n)
	}
}

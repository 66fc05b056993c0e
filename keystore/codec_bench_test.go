package keystore

import (
	"testing"
	"time"
)

// completedRecord is a record as a replay finds it.
func completedRecord(tb testing.TB) Record {
	var cur *Record
	for i, ev := range []Event{
		{Kind: Reserve, Attempt: "8e03978e-40d5-43dd-bc93-6894a57f9324", Silence: time.Minute, Keep: time.Hour, New: &Record{
			ID: ID{"default", "8e03978e-40d5-43dd-bc93-6894a57f9324"}, Operation: "01a227c0-8635-7eb4-aeed-41c0eb2a4fcd",
			Fingerprint: "raw1:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Method: "POST", Route: "charges",
			Target: Target{Scheme: "https", Host: "api.example.com", Path: "/v1/charges"}}},
		{Kind: Mark, Attempt: "8e03978e-40d5-43dd-bc93-6894a57f9324", Silence: time.Minute},
		{Kind: Complete, Attempt: "8e03978e-40d5-43dd-bc93-6894a57f9324", Keep: time.Hour, Outcome: &Outcome{
			Source: FromResponse, Status: 201, BodySize: 200, Retained: true, BodySHA256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			Header: []Field{{"Content-Type", "application/json"}, {"Request-Id", "req_0123456789"}}}},
	} {
		ev.Writer, ev.By = "host-0123456789ab/"+string(rune('a'+i)), "host-0123456789ab"
		w, no := Next(cur, ev, 1, nil)
		if no != Allowed {
			tb.Fatal(no)
		}
		r := w.Stamped(1_700_000_000_000)
		cur = &r
	}
	return *cur
}

func BenchmarkEncode(b *testing.B) {
	r := completedRecord(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(Encode(&r))))
	for b.Loop() {
		Encode(&r)
	}
}

func BenchmarkDecode(b *testing.B) {
	r := completedRecord(b)
	blob := Encode(&r)
	c := Columns{r.Version, r.Writer, r.State, r.UpdatedAt, r.Deadline, r.Expires}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(r.ID, c, blob); err != nil {
			b.Fatal(err)
		}
	}
}

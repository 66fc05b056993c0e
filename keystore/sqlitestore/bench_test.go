package sqlitestore

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
)

var serial atomic.Int64

func name(prefix string) string { return fmt.Sprintf("%s-%d", prefix, serial.Add(1)) }

// reservation is a first write as the proxy makes it.
func reservation(tb testing.TB, id keystore.ID) keystore.Write {
	tb.Helper()
	w, no := keystore.Next(nil, keystore.Event{
		Kind: keystore.Reserve, Writer: name("w"), By: "instance-1", Attempt: name("a"), Silence: 30 * time.Second, Keep: 24 * time.Hour,
		New: &keystore.Record{ID: id, Operation: name("op"), Fingerprint: "raw1:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Method: "POST", Route: "charges",
			Target: keystore.Target{Scheme: "https", Host: "api.example.com", Path: "/v1/charges"}},
	}, 0, nil)
	if no != keystore.Allowed {
		tb.Fatal(no)
	}
	return w
}

func mark(tb testing.TB, r keystore.Record) keystore.Write {
	tb.Helper()
	w, no := keystore.Next(&r, keystore.Event{Kind: keystore.Mark, Writer: name("w"), By: r.Owner, Attempt: r.AttemptID, Silence: 30 * time.Second}, 0, nil)
	if no != keystore.Allowed {
		tb.Fatal(no)
	}
	return w
}

func complete(tb testing.TB, r keystore.Record, body []byte, keep time.Duration) keystore.Write {
	tb.Helper()
	w, no := keystore.Next(&r, keystore.Event{Kind: keystore.Complete, Writer: name("w"), By: "instance-1", Attempt: r.AttemptID, Keep: keep, Body: body,
		Outcome: &keystore.Outcome{Source: keystore.FromResponse, Status: 201, BodySize: int64(len(body)), Retained: true, Header: []keystore.Field{{Name: "Content-Type", Value: "application/json"}}}}, 0, nil)
	if no != keystore.Allowed {
		tb.Fatal(no)
	}
	return w
}

// written fails the test unless the write happened.
func written(tb testing.TB, rep keystore.Reply, err error) keystore.Record {
	tb.Helper()
	if err != nil || rep.Result != keystore.Written {
		tb.Fatalf("result %d: %v", rep.Result, err)
	}
	return rep.Record
}

// flow brings one operation from nothing to Completed.
func flow(tb testing.TB, s *Store, id keystore.ID, body []byte) keystore.Record {
	tb.Helper()
	rep, err := s.Insert(tb.Context(), reservation(tb, id))
	r := written(tb, rep, err)
	rep, err = s.Swap(tb.Context(), mark(tb, r))
	r = written(tb, rep, err)
	rep, err = s.Swap(tb.Context(), complete(tb, r, body, time.Hour))
	return written(tb, rep, err)
}

func benchStore(b *testing.B) *Store {
	b.Helper()
	s, err := Open(b.Context(), Options{Path: filepath.Join(b.TempDir(), "ledger.db"), Timeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// callers runs f from n goroutines, b.N times in all.
func callers(b *testing.B, n int, f func()) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan struct{})
	for range n {
		go func() {
			defer func() { done <- struct{}{} }()
			for left.Add(-1) >= 0 {
				f()
			}
		}()
	}
	for range n {
		<-done
	}
	b.StopTimer()
}

var body200 = []byte(strings.Repeat("0123456789", 20))

// BenchmarkFlow is the life of an operation: three durable writes.
func BenchmarkFlow(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			s := benchStore(b)
			commits, writes := s.writer.commits.Load(), s.writer.writes.Load()
			callers(b, n, func() { flow(b, s, keystore.ID{Scope: "bench", Key: randomKey()}, body200) })
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "flows/s")
			b.ReportMetric(float64(s.writer.writes.Load()-writes)/float64(s.writer.commits.Load()-commits), "writes/commit")
		})
	}
}

// BenchmarkReplay is an insert that meets a completed record.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			s := benchStore(b)
			var ids [256]keystore.ID
			for i := range ids {
				ids[i] = keystore.ID{Scope: "bench", Key: randomKey()}
				flow(b, s, ids[i], body200)
			}
			w := reservation(b, ids[0])
			var next atomic.Uint64
			callers(b, n, func() {
				w := w
				w.Record.ID = ids[next.Add(1)%256]
				rep, err := s.Insert(b.Context(), w)
				if err != nil || rep.Result != keystore.Exists || len(rep.Body) != 200 {
					b.Errorf("%d %v", rep.Result, err)
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "replays/s")
		})
	}
}

package storetest

import (
	"context"
	"flag"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"fencepost/keystore"
)

// filtered reports whether the run was narrowed by -run, so that not every law
// can be expected to have run.
func filtered() bool {
	for _, name := range []string{"test.run", "test.skip"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	return false
}

var serial atomic.Int64

func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, serial.Add(1)) }

func id(scope, key string) keystore.ID { return keystore.ID{Scope: scope, Key: key} }

// reserveEvent is a complete reservation of id by a new attempt.
func reserveEvent(id keystore.ID) keystore.Event {
	return keystore.Event{
		Kind: keystore.Reserve, Writer: unique("w"), By: "instance-1", Attempt: unique("a"), Why: "first request",
		Silence: 30 * time.Second, Keep: 24 * time.Hour,
		New: &keystore.Record{
			ID: id, Operation: unique("op"), Fingerprint: "raw1:00", Method: "POST", Route: "charges",
			Target:   keystore.Target{Scheme: "https", Host: "api.example.com", Path: "/v1/charges", Query: "expand=1&x=%22"},
			Captured: map[string]string{"order": "o-1 \"quoted\" \u00e9"},
		},
	}
}

// must runs the transition function and fails the test where it refuses.
func must(t *testing.T, cur *keystore.Record, ev keystore.Event, now keystore.Instant) keystore.Write {
	t.Helper()
	w, no := keystore.Next(cur, ev, now, nil)
	if no != keystore.Allowed {
		t.Fatalf("%v on %+v: refused: %s", ev.Kind, cur, no)
	}
	return w
}

func outcome(status int, body string) *keystore.Outcome {
	return &keystore.Outcome{
		Source: keystore.FromResponse, Status: status, BodySize: int64(len(body)), Retained: true,
		Header: []keystore.Field{{Name: "Content-Type", Value: "application/json"}, {Name: "Link", Value: "<a>"}, {Name: "Link", Value: "<b>"}},
	}
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return c
}

func insert(t *testing.T, s keystore.Store, w keystore.Write) keystore.Reply {
	t.Helper()
	r, err := s.Insert(ctx(t), w)
	return check(t, r, err)
}

func swap(t *testing.T, s keystore.Store, w keystore.Write) keystore.Reply {
	t.Helper()
	r, err := s.Swap(ctx(t), w)
	return check(t, r, err)
}

func get(t *testing.T, s keystore.Store, id keystore.ID) keystore.Reply {
	t.Helper()
	r, err := s.Get(ctx(t), id)
	return check(t, r, err)
}

func check(t *testing.T, r keystore.Reply, err error) keystore.Reply {
	t.Helper()
	if err != nil {
		t.Fatalf("the store failed: %v", err)
	}
	if r.Now <= 0 {
		t.Fatalf("a reply without the store's clock: %+v", r)
	}
	return r
}

func want(t *testing.T, r keystore.Reply, res keystore.Result) keystore.Reply {
	t.Helper()
	if r.Result != res {
		t.Fatalf("result %d, want %d (record %+v)", r.Result, res, r.Record)
	}
	return r
}

// same compares records as a whole.
func same(t *testing.T, got, want keystore.Record) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("records differ\n got %+v\nwant %+v", got, want)
	}
}

// reserved inserts a fresh reservation.
func reserved(t *testing.T, s keystore.Store, id keystore.ID) keystore.Record {
	t.Helper()
	return want(t, insert(t, s, must(t, nil, reserveEvent(id), 0)), keystore.Written).Record
}

// dispatched brings a fresh operation to Dispatched.
func dispatched(t *testing.T, s keystore.Store, id keystore.ID) keystore.Record {
	t.Helper()
	r := reserved(t, s, id)
	return want(t, swap(t, s, must(t, &r, markEvent(r), 0)), keystore.Written).Record
}

// completed brings a fresh operation to Completed with the body.
func completed(t *testing.T, s keystore.Store, id keystore.ID, body string) keystore.Record {
	t.Helper()
	r := dispatched(t, s, id)
	return want(t, swap(t, s, must(t, &r, completeEvent(r, body), 0)), keystore.Written).Record
}

func markEvent(r keystore.Record) keystore.Event {
	return keystore.Event{Kind: keystore.Mark, Writer: unique("w"), By: r.Owner, Attempt: r.AttemptID, Silence: 30 * time.Second}
}

func completeEvent(r keystore.Record, body string) keystore.Event {
	return keystore.Event{Kind: keystore.Complete, Writer: unique("w"), By: "instance-1", Attempt: r.AttemptID, Keep: time.Hour, Outcome: outcome(201, body), Body: []byte(body)}
}

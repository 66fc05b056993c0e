package main

import (
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"
)

// sdkScene is what happens to one call, and how it has to end.
type sdkScene struct {
	name string
	// set prepares gateway and relay for the call.
	set func(t *testing.T, st *sdkStage, call string)
	// timeout is that of an attempt, in ms.
	timeout int
	// single: the SDK need not retry. refused: nothing is sent.
	single, refused bool
	// ends checks the end; what holds of every scene is checked besides.
	ends func(t *testing.T, st *sdkStage, call string, end sdkEnd)
}

// sdkStage is a Fencepost with what is before and behind it.
type sdkStage struct {
	g *gateway
	p *process
	r *relay
}

func newStage(t *testing.T, g *gateway, p *process) *sdkStage {
	return &sdkStage{g, p, newRelay(t, p.url)}
}

// patience of an attempt that is not meant to time out, and of one that is, in ms.
const (
	patient   = 30000
	impatient = 5000
)

// trueAnswer: the charge of the one effect.
func trueAnswer(t *testing.T, _ *sdkStage, call string, end sdkEnd) {
	t.Helper()
	if end.Error != nil || end.ID != "charge of "+call {
		t.Errorf("it ended with %v", end)
	}
}

// told: an error that says the outcome is unknown.
func told(t *testing.T, st *sdkStage, call string, end sdkEnd) {
	t.Helper()
	if end.Error == nil || end.Error.Status != 409 || end.Error.Code != "outcome_unknown" {
		t.Errorf("it ended with %v", end)
	}
	if s := st.p.state(st.r.call(call).key); s != "unknown" {
		t.Errorf("it reads %s", s)
	}
}

// noSuccess: an error of any kind, or the true answer.
func noSuccess(t *testing.T, st *sdkStage, call string, end sdkEnd) {
	t.Helper()
	if end.Error == nil {
		trueAnswer(t, st, call, end)
	}
}

// sdkScenes are the ways in which an answer does not come.
func sdkScenes() (scenes []sdkScene) {
	for _, l := range losses {
		s := sdkScene{name: "lost at the upstream: " + l.name, timeout: patient, ends: told}
		switch l.name {
		case "no answer":
			continue // it is the route's timeout that ends it, and an answer like any other
		case "half a stream":
			s.single, s.ends = true, func(t *testing.T, st *sdkStage, call string, end sdkEnd) {
				if end.Error == nil {
					t.Errorf("it takes half an answer for one: %v", end)
				}
			}
		}
		s.set = func(_ *testing.T, st *sdkStage, call string) { st.g.loses(call, l.fault) }
		scenes = append(scenes, s)
	}
	return append(scenes,
		sdkScene{name: "lost on the way back", timeout: patient, ends: trueAnswer, set: func(_ *testing.T, st *sdkStage, call string) { st.r.locked(call, func(c *relayed) { c.lose = 2 }) }},
		sdkScene{name: "half lost on the way back", timeout: patient, single: true, ends: noSuccess, set: halfLost},
	)
}

// halfLost cuts Fencepost's first answer in its body.
func halfLost(_ *testing.T, st *sdkStage, call string) {
	st.r.locked(call, func(c *relayed) { c.lose, c.half = 1, true })
}

// held lets a request take effect and answers it when it is released, or the test over.
func held(t *testing.T) (f fault, release func()) {
	c := make(chan struct{})
	return func(h *gatewayHop) {
		resp, b := h.forward()
		select {
		case <-c:
		case <-t.Context().Done():
		}
		h.w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		h.w.Write(b)
	}, sync.OnceFunc(func() { close(c) })
}

// inFlight: the SDK gives up, and its retry comes while the first attempt is still
// in flight: it is told so, and the upstream's answer comes then.
var inFlight = sdkScene{name: "told that it is in flight", timeout: impatient, ends: trueAnswer, set: func(t *testing.T, st *sdkStage, call string) {
	f, release := held(t)
	st.g.loses(call, f)
	answered := func(resp *http.Response) {
		if resp.StatusCode == 409 && resp.Header.Get("Retry-After") != "" {
			release()
		}
	}
	st.r.locked(call, func(c *relayed) { c.answered = answered })
}}

// stillInFlight is the same with a client to which a 409 is final: the upstream's
// answer comes when the client has ended.
var stillInFlight = sdkScene{name: "told that it is in flight", timeout: impatient, set: func(t *testing.T, st *sdkStage, call string) {
	f, release := held(t)
	st.g.loses(call, f)
	st.r.locked(call, func(c *relayed) { c.release = release })
}, ends: func(t *testing.T, st *sdkStage, call string, end sdkEnd) {
	c := st.r.call(call)
	c.release()
	if end.Error == nil || end.Error.Status != 409 || end.Error.Code != "idempotency_in_flight" {
		t.Errorf("it ended with %v", end)
	}
	eventually(t, "the answer in flight is recorded", func() bool { return st.p.state(c.key) == "completed" })
}}

// waits is the same where the duplicate waits in Fencepost for the answer.
var waits = sdkScene{name: "waits for the answer in flight", timeout: impatient, set: func(t *testing.T, st *sdkStage, call string) {
	f, release := held(t)
	st.g.loses(call, f)
	waiting := regexp.MustCompile(`(?m)^fencepost_waiting [1-9]`)
	arrived := func(n int) {
		if n != 2 {
			return
		}
		go func() {
			for !waiting.MatchString(send("GET", st.p.admin+"/metrics", "", "").body) && t.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			release()
		}()
	}
	st.r.locked(call, func(c *relayed) { c.arrived = arrived })
}, ends: func(t *testing.T, st *sdkStage, call string, end sdkEnd) {
	trueAnswer(t, st, call, end)
	for _, s := range st.r.call(call).statuses {
		if s != 200 {
			t.Errorf("Fencepost answered %d", s)
		}
	}
}}

// emptied: what a call ends with that takes a body that was cut for an empty one.
var emptied = sdkScene{name: "half lost on the way back", timeout: patient, single: true, set: halfLost, ends: func(t *testing.T, _ *sdkStage, _ string, end sdkEnd) {
	if end.Error != nil || end.ID != "" {
		t.Errorf("it ended with %v", end)
	}
}}

// keyRequired: what a call ends with that brings no key where one is required.
var keyRequired = sdkScene{name: "without a key", timeout: patient, single: true, refused: true, set: func(*testing.T, *sdkStage, string) {}, ends: func(t *testing.T, _ *sdkStage, _ string, end sdkEnd) {
	if end.Error == nil || end.Error.Status != 400 || end.Error.Code != "idempotency_key_required" {
		t.Errorf("it ended with %v", end)
	}
}}

// rotated is a scene for a way that makes a key for each attempt.
func rotated(s sdkScene) sdkScene {
	s.ends = func(t *testing.T, st *sdkStage, call string, end sdkEnd) {
		c := st.r.call(call)
		if n := c.values("Idempotency-Key"); n != c.arrivals {
			t.Errorf("%d requests brought %d keys", c.arrivals, n)
		}
		if end.Error == nil || !s.single && (end.Error.Status != 409 || end.Error.Code != "duplicate_payload") {
			t.Errorf("it ended with %v", end)
		}
	}
	return s
}

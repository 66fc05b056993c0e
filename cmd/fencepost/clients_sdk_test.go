package main

import (
	"fmt"
	"testing"
)

// sdk is a client that retries by itself. What each needs is in docs/clients.md.
type sdk struct {
	name string
	run  func(*testing.T, []sdkCall) []sdkEnd
	// class is that of its error for an answer that says no, or Refused, the test's
	// own, where it gives the answer itself.
	class string
	// route is the one of docs/clients.md for these ways; the first is the one shown.
	route string
	ways  []string
	// deaf: a 409 is final to it, so that it does not come to the answer in flight
	// without a route that waits.
	deaf bool
	// bare is added to a route that does not wait, for a deaf one.
	bare string
	// heeds: it waits out the Retry-After of a 409.
	heeds bool
	// varies are fields that are different in each attempt.
	varies []string
	// rotates: it can be made to bring a key of its own with each attempt.
	rotates bool
	// more are shows of its own.
	more []sdkShow
}

var sdks = []sdk{
	{name: "axios", class: "AxiosError", run: node("axios.mjs"), heeds: true, route: "keyed", ways: []string{"keyed", "own"}, rotates: true},
	{name: "got", class: "HTTPError", run: node("got.mjs"), heeds: true, route: "keyed", ways: []string{"keyed", "own"}, rotates: true},
	{name: "ky", class: "HTTPError", run: node("ky.mjs"), heeds: true, route: "keyed", ways: []string{"keyed", "own"}, rotates: true},
	{name: "undici", class: "Refused", run: node("undici.mjs"), heeds: true, route: "keyed", ways: []string{"keyed", "composed"}, rotates: true},
	{name: "octokit", class: "RequestError", run: node("octokit.mjs"), route: "keyed", ways: []string{"keyed", "own"}, rotates: true, more: []sdkShow{{way: "cut", sdkScene: emptied}}},
	{name: "openai", class: "ConflictError", run: node("openai.mjs"), heeds: true, varies: []string{"X-Stainless-Retry-Count"}, route: "keyed", ways: []string{"keyed", "own"}, more: []sdkShow{{way: "option", sdkScene: keyRequired}}},
	{name: "aws", class: "SchedulerServiceException", run: node("aws.mjs"), route: "invocation", ways: []string{"invocation", "signed"}, deaf: true, bare: ", key: {header: Amz-Sdk-Invocation-Id}", varies: []string{"Authorization", "Amz-Sdk-Request"}},
	{name: "requests", class: "HTTPError", run: python("requests_retry.py"), heeds: true, route: "keyed", ways: []string{"keyed", "pooled"}},
}

// TestSDKs: whatever the SDK retries and however its answer got lost, there is one
// effect, and it ends with the true answer or with an error that says what is known.
func TestSDKs(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shop(t))
	g.name = callOf
	derived, rotating := newStage(t, g, documented(t, g, "derived")), newStage(t, g, documented(t, g, "rotating"))
	bare := newStage(t, g, frontOf(t, g, ""))
	few := make(chan struct{}, 4) // of the interpreters that start at once
	together(t, sdks, func(s sdk) string { return s.name }, func(t *testing.T, _ int, sdk sdk) {
		few <- struct{}{}
		defer func() { <-few }()
		st := newStage(t, g, documented(t, g, sdk.route))
		shows := []sdkShow{{waits, sdk.ways[0], st}}
		for _, scene := range sdkScenes() {
			for _, way := range sdk.ways {
				shows = append(shows, sdkShow{scene, way, st})
			}
			shows = append(shows, sdkShow{scene, "keyless", derived})
			if sdk.rotates {
				shows = append(shows, sdkShow{rotated(scene), "fresh", rotating})
			}
		}
		if sdk.deaf {
			shows = append(shows, sdkShow{stillInFlight, sdk.ways[0], newStage(t, g, frontOf(t, g, sdk.bare))})
		} else {
			shows = append(shows, sdkShow{inFlight, sdk.ways[0], bare})
		}
		for _, more := range sdk.more {
			shows = append(shows, sdkShow{more.sdkScene, more.way, bare})
		}
		play(t, sdk, shows)
	})
}

// sdkShow is one scene with one way of an SDK.
type sdkShow struct {
	sdkScene
	way   string
	stage *sdkStage
}

// play makes the calls of all shows at once and checks each.
func play(t *testing.T, sdk sdk, shows []sdkShow) {
	t.Helper()
	calls := make([]sdkCall, len(shows))
	names := make([]string, len(shows))
	for i, s := range shows {
		names[i] = fmt.Sprint(sdk.name, "-", i)
		s.set(t, s.stage, names[i])
		retries := 3
		if s.timeout == impatient {
			retries = 6
		}
		calls[i] = sdkCall{
			Way: s.way, URL: s.stage.r.URL + "/" + names[i], Upstream: s.stage.g.URL + "/" + names[i], Timeout: s.timeout, Retries: retries, Key: "key-of-" + names[i],
			Order: map[string]string{"amount": "1999", "note": "<é> " + names[i]},
		}
	}
	for i, end := range sdk.run(t, calls) {
		s := shows[i]
		t.Run(s.way+", "+s.name, func(t *testing.T) {
			c := s.stage.r.call(names[i])
			t.Logf("%d requests came, Fencepost answered %v, it ended with %v", c.arrivals, c.statuses, end)
			if s.refused {
				if n := s.stage.g.of(names[i]).attempts; n != 0 {
					t.Errorf("%d requests went through", n)
				}
			} else {
				s.stage.g.once(t, names[i])
			}
			if !s.single && c.arrivals < 2 {
				t.Errorf("the SDK did not retry: %d requests", c.arrivals)
			}
			for _, field := range sdk.varies {
				if n := c.values(field); n != c.arrivals {
					t.Errorf("%d requests had %d values of %s, so that nothing is shown of a field that varies", c.arrivals, n, field)
				}
			}
			s.ends(t, s.stage, names[i], end)
			if s.way == "signed" {
				signedBy(t, s.stage.g.of(names[i]))
			}
			if end.Error != nil && end.Error.Code == "outcome_unknown" && end.Error.Class != sdk.class && s.way != "pooled" {
				t.Errorf("the error is a %s, want %s", end.Error.Class, sdk.class)
			}
			if s.name == inFlight.name && sdk.heeds && c.hasty {
				t.Error("it did not wait out Retry-After")
			}
		})
	}
}

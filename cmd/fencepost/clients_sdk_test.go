package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// sdkCall is one call of an SDK: an order that is placed by one of the ways of
// its file in testdata/clients.
type sdkCall struct {
	Way      string            `json:"way"`
	URL      string            `json:"url"`      // the base URL
	Upstream string            `json:"upstream"` // the base URL behind Fencepost
	Timeout  int               `json:"timeout"`  // of an attempt, in ms
	Retries  int               `json:"retries"`
	Key      string            `json:"key"`
	Order    map[string]string `json:"order"`
}

// sdkEnd is what a call ended with: the charge's id or an error.
type sdkEnd struct {
	ID    string
	Error *sdkError
}

// sdkError is an error as a caller reads it by what docs/clients.md says: the
// HTTP status and Fencepost's code, or the SDK's own code where there was no answer.
type sdkError struct {
	Class, Code, Message string
	Status               int
}

func (e sdkEnd) String() string {
	if e.Error != nil {
		return fmt.Sprintf("error %+v", *e.Error)
	}
	return "charge " + e.ID
}

// node runs an SDK's file with calls that are made at once.
func node(file string) func(*testing.T, []sdkCall) []sdkEnd {
	return func(t *testing.T, calls []sdkCall) []sdkEnd {
		t.Helper()
		in, _ := json.Marshal(map[string]any{"calls": calls})
		return sdkEnds(t, clientProgram(t, "node", filepath.Join(nodeFolder(t), file)), in, len(calls))
	}
}

// nodeFolder is a folder with the files of testdata/clients beside node_modules:
// an ECMAScript module finds packages nowhere else.
func nodeFolder(t *testing.T) string {
	t.Helper()
	modules, err := nodeModules()
	if err == nil {
		_, err = exec.LookPath("node")
	}
	if err != nil {
		unavailable(t, "the SDKs of npm", err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/clients")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// debianPython is the interpreter that Debian's packages belong to; another may be
// first in the path.
const debianPython = "/usr/bin/python3"

// python runs a file like node does.
func python(file string) func(*testing.T, []sdkCall) []sdkEnd {
	return func(t *testing.T, calls []sdkCall) []sdkEnd {
		t.Helper()
		if out, err := exec.Command(debianPython, "-c", "import requests, urllib3").CombinedOutput(); err != nil {
			unavailable(t, "python3-requests", fmt.Errorf("%w: %s", err, out))
		}
		in, _ := json.Marshal(map[string]any{"calls": calls})
		return sdkEnds(t, clientProgram(t, debianPython, filepath.Join("testdata", "clients", file)), in, len(calls))
	}
}

func sdkEnds(t *testing.T, cmd *exec.Cmd, in []byte, n int) (ends []sdkEnd) {
	t.Helper()
	out, problems, err := piped(cmd, in)
	if err == nil {
		err = json.Unmarshal([]byte(out), &ends)
	}
	if err != nil || len(ends) != n {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, problems)
	}
	return ends
}

// shop is the server behind the gateway: it answers every order with a charge in
// which each SDK finds what it needs.
func shop(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", `"1"`)
		id := "charge of " + callOf(r)
		json.NewEncoder(w).Encode(map[string]any{"id": id, "ScheduleArn": id, "object": "chat.completion", "choices": []any{}})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// documented starts Fencepost with a configuration of docs/clients.md: the one
// whose route has this name, before this gateway.
func documented(t *testing.T, g *gateway, route string) *process {
	t.Helper()
	for _, block := range fenced(t, "yaml") {
		if !strings.Contains(block, "name: "+route+",") {
			continue
		}
		text := regexp.MustCompile(`upstream: [^\s,}]+`).ReplaceAllString(block, "upstream: '"+g.URL+"'")
		dir := t.TempDir()
		text += fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nledger: {url: 'sqlite://%s/l.db'}\n", dir)
		name := filepath.Join(dir, "fencepost.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return frontWith(t, nil, name)
	}
	t.Fatalf("docs/clients.md shows no route named %s", route)
	return nil
}

// fenced are the code blocks of docs/clients.md in a language.
func fenced(t *testing.T, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range strings.Split(string(text), "```"+language+"\n")[1:] {
		b, _, _ = strings.Cut(b, "```")
		blocks = append(blocks, b)
	}
	return blocks
}

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
	impatient = 2000
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

// stillInFlight is the same with a client to which a 409 is final.
var stillInFlight = sdkScene{name: "told that it is in flight", timeout: impatient, set: inFlight.set, ends: func(t *testing.T, st *sdkStage, call string, end sdkEnd) {
	if end.Error == nil || end.Error.Status != 409 || end.Error.Code != "idempotency_in_flight" {
		t.Errorf("it ended with %v", end)
	}
	eventually(t, "the answer in flight is recorded", func() bool { return st.p.state(st.r.call(call).key) == "completed" })
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
			if s.name == inFlight.name && !sdk.deaf && c.heeded != sdk.heeds {
				t.Errorf("it waited out Retry-After: %v", c.heeded)
			}
		})
	}
}

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
	// bare is added to a route that does not wait.
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

// TestSDKs: whatever the SDK retries and however its answer got lost, there is one
// effect, and it ends with the true answer or with an error that says what is known.
func TestSDKs(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shop(t))
	g.name = callOf
	derived, rotating := newStage(t, g, documented(t, g, "derived")), newStage(t, g, documented(t, g, "rotating"))
	together(t, sdks, func(s sdk) string { return s.name }, func(t *testing.T, _ int, sdk sdk) {
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
		bare := newStage(t, g, frontOf(t, g, sdk.bare))
		if sdk.deaf {
			shows = append(shows, sdkShow{stillInFlight, sdk.ways[0], bare})
		} else {
			shows = append(shows, sdkShow{inFlight, sdk.ways[0], bare})
		}
		for _, more := range sdk.more {
			shows = append(shows, sdkShow{more.sdkScene, more.way, bare})
		}
		play(t, sdk, shows)
	})
}

package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestOutcomeRulesInOrder(t *testing.T) {
	rules := []OutcomeRule{
		{must(CompileOutcome(`response.status == 200 && response.json.ok == false && response.json.error == "ratelimited"`))(t), ClassNotApplied},
		{must(CompileOutcome(`response.status == 200 && response.json.ok == false`))(t), ClassUnknown},
		{must(CompileOutcome(`response.status == 503 && "x-not-processed" in response.headers`))(t), ClassNotApplied},
		{must(CompileOutcome(`response.headers["content-type"].startsWith("text/html")`))(t), ClassUnknown},
		{must(CompileOutcome(`response.json.amount > 9007199254740992`))(t), ClassFinal},
	}
	for _, c := range []struct {
		name   string
		status int
		header map[string][]string
		body   string
		want   Class
	}{
		{"the first true rule decides", 200, nil, `{"ok":false,"error":"ratelimited"}`, ClassNotApplied},
		{"then the second", 200, nil, `{"ok":false}`, ClassUnknown},
		{"no rule: the default", 200, nil, `{"ok":true}`, ClassFinal},
		{"not JSON: the default", 200, nil, `<html>`, ClassFinal},
		{"two documents are not JSON", 200, nil, `{"ok":false} {"ok":true}`, ClassFinal},
		{"empty: the default", 204, nil, ``, ClassFinal},
		{"a header", 503, map[string][]string{"X-Not-Processed": {"1"}}, ``, ClassNotApplied},
		{"no header: the default", 503, nil, ``, ClassUnknown},
		{"a media type", 200, map[string][]string{"Content-Type": {"text/html; charset=utf-8"}}, `x`, ClassUnknown},
		{"whole numbers are exact", 500, nil, `{"amount":9007199254740993}`, ClassFinal},
		{"and not rounded up", 500, nil, `{"amount":9007199254740992}`, ClassUnknown},
		{"a value of another kind is no match", 200, nil, `{"ok":"false"}`, ClassFinal},
	} {
		if got := ClassifyBy(rules, &Message{Status: c.status, Header: c.header, Body: []byte(c.body)}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestABadExpressionSaysWhere(t *testing.T) {
	for text, want := range map[string]string{
		`response.status ==`:             "at 1:",
		`respons.status == 200`:          "undeclared reference to 'respons'",
		`response.status`:                "", // dynamic: checked when it runs
		`"x"`:                            "it gives string, and bool is needed",
		`response.status == 200 && nope`: "at 1:27",
		`1 + 1`:                          "it gives int",
	} {
		_, err := CompileOutcome(text)
		var e *ExprError
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAnExpressionCannotRunForLong(t *testing.T) {
	rule := []OutcomeRule{{must(CompileOutcome(`response.json.a.all(x, response.json.a.all(y, response.json.a.all(z, x + y + z >= 0)))`))(t), ClassFinal}}
	body := "[" + strings.TrimSuffix(strings.Repeat("1,", 2000), ",") + "]"
	if got := ClassifyBy(rule, &Message{Status: 500, Body: []byte(`{"a":` + body + `}`)}); got != ClassUnknown {
		t.Errorf("%v", got)
	}
}

func TestCapture(t *testing.T) {
	rules := []CaptureRule{
		{"order", must(CompileCapture(`request.json.order_id`))(t)},
		{"ref", must(CompileCapture(`request.headers["x-reference"]`))(t)},
		{"path", must(CompileCapture(`request.path.split("/")[2]`))(t)},
		{"missing", must(CompileCapture(`request.json.nope`))(t)},
		{"list", must(CompileCapture(`request.json.items`))(t)},
		{"long", must(CompileCapture(`request.json.long`))(t)},
	}
	m := &Message{Method: "POST", Path: "/v1/charges", Header: map[string][]string{"X-Reference": {"r-1"}}, Body: []byte(`{"order_id":9007199254740993,"items":[1],"long":"` + strings.Repeat("x", 2000) + `"}`)}
	if got := fmt.Sprint(Capture(rules, m)); got != "map[order:9007199254740993 path:charges ref:r-1]" {
		t.Errorf("%s", got)
	}
	m.Body = []byte("a=b")
	if got := fmt.Sprint(Capture(rules, m)); got != "map[path:charges ref:r-1]" {
		t.Errorf("%s", got)
	}
}

func TestTemplates(t *testing.T) {
	tmpl := must(CompileTemplate("https://api.example.com/v1/charges/{key}?ref={captured.order}&op={operation}&n={attempt}", []string{"order"}))(t)
	got, err := tmpl.Expand(&Operation{Key: "a/b?c&d=e+f{x}%", ID: "op-1", Attempt: 2, Captured: map[string]string{"order": "1&admin=true#x"}})
	if want := "https://api.example.com/v1/charges/a%2Fb%3Fc%26d%3De%2Bf%7Bx%7D%25?ref=1%26admin%3Dtrue%23x&op=op-1&n=2"; err != nil || got != want {
		t.Errorf("%s %v", got, err)
	}
	if _, err := tmpl.Expand(&Operation{Key: "k"}); err == nil || !strings.Contains(err.Error(), "captured.order") {
		t.Errorf("a hole was filled with nothing: %v", err)
	}
	for _, bad := range []string{"", "/relative/{key}", "ftp://x/{key}", "https://{key}/x", "https://x{key}/", "https://x.{key}.com/", "https://x/{nope}", "https://x/{captured.nope}", "https://x/{key", "http{key}://x/"} {
		if _, err := CompileTemplate(bad, []string{"order"}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestALookupIsRead(t *testing.T) {
	r := &Reconciler{
		Confirmed: must(CompileLookup(`lookup.status == 200 && size(lookup.json.data) == 1 && lookup.json.data[0].ref == operation.key`))(t),
		NotFound:  must(CompileLookup(`lookup.status == 404 || size(lookup.json.data) == 0`))(t),
		Status:    201, Body: must(CompileLookupValue(`lookup.json.data[0]`))(t),
	}
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   Evidence
		resp   string
	}{
		{"one", 200, `{"data":[{"ref":"k","amount":9007199254740993,"nested":{"a":[1,null,true,"x",1.5]}}]}`, EvidenceConfirmed, `{"amount":9007199254740993,"nested":{"a":[1,null,true,"x",1.5]},"ref":"k"}`},
		{"none", 200, `{"data":[]}`, EvidenceNotFound, ""},
		{"404 without JSON", 404, `not found`, EvidenceNotFound, ""},
		{"two matches are never picked from", 200, `{"data":[{"ref":"k"},{"ref":"k"}]}`, EvidenceAmbiguous, ""},
		{"another's", 200, `{"data":[{"ref":"other"}]}`, EvidenceAmbiguous, ""},
		{"not JSON", 200, `<html>`, EvidenceAmbiguous, ""},
		{"a field that is not there", 200, `{}`, EvidenceAmbiguous, ""},
		{"a server error", 500, ``, EvidenceAmbiguous, ""},
		{"429", 429, `{"data":[]}`, EvidenceNotFound, ""}, // what the conditions say, they say
	} {
		v := r.Read(&Message{Status: c.status, Body: []byte(c.body)}, &Operation{Key: "k"})
		if v.Evidence != c.want || string(v.Body) != c.resp || v.Kept != (c.resp != "") || v.Why == "" {
			t.Errorf("%s: %v %q %s", c.name, v.Evidence, v.Body, v.Why)
		}
	}
	both := &Reconciler{Confirmed: must(CompileLookup(`true`))(t), NotFound: must(CompileLookup(`true`))(t)}
	if v := both.Read(&Message{Status: 200}, &Operation{}); v.Evidence != EvidenceAmbiguous {
		t.Errorf("both true: %v", v.Evidence)
	}
	broken := &Reconciler{Confirmed: must(CompileLookup(`true`))(t), NotFound: must(CompileLookup(`lookup.json.x == 1`))(t)}
	if v := broken.Read(&Message{Status: 200}, &Operation{}); v.Evidence != EvidenceAmbiguous {
		t.Errorf("one cannot be evaluated: %v", v.Evidence)
	}
	only := &Reconciler{Confirmed: must(CompileLookup(`lookup.status == 200`))(t)}
	if v := only.Read(&Message{Status: 404}, &Operation{}); v.Evidence != EvidenceAmbiguous {
		t.Errorf("without not_found nothing is not found: %v", v.Evidence)
	}
	if v := only.Read(&Message{Status: 200}, &Operation{}); v.Evidence != EvidenceConfirmed || v.Kept {
		t.Errorf("%+v", v)
	}
}

package policy

import (
	"fmt"
	"strconv"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types/ref"
)

// OutcomeRule overrides what an answer is worth (DESIGN section 6).
type OutcomeRule struct {
	When  *Expr
	Class Class
}

// CompileOutcome compiles the condition of an outcome rule, over
// response.status, response.headers and response.json.
func CompileOutcome(text string) (*Expr, error) { return compile(text, cel.BoolType, "response") }

// CompileCapture compiles an expression over request.method, request.path,
// request.query, request.headers and request.json.
func CompileCapture(text string) (*Expr, error) { return compile(text, nil, "request") }

// CompileLookup compiles a condition over lookup.status, lookup.headers,
// lookup.json and operation.key, .id, .attempt, .method, .path, .captured.
func CompileLookup(text string) (*Expr, error) {
	return compile(text, cel.BoolType, "lookup", "operation")
}

// CompileLookupValue compiles an expression over the same, of any kind.
func CompileLookupValue(text string) (*Expr, error) { return compile(text, nil, "lookup", "operation") }

// ParseClass reads the name of a class.
func ParseClass(name string) (Class, error) {
	for _, c := range []Class{ClassUnknown, ClassFinal, ClassNotApplied} {
		if c.String() == name {
			return c, nil
		}
	}
	return ClassUnknown, fmt.Errorf("%q is not one of final, not_applied, unknown", name)
}

// ClassifyBy says what an answer is worth: the first rule that is true decides,
// then the defaults of Classify. A rule that cannot be evaluated is not true.
func ClassifyBy(rules []OutcomeRule, m *Message) Class {
	if c, ruled := ruled(rules, m); ruled {
		return c
	}
	return Classify(m.Status)
}

// ClassifyAgain is ClassifyBy for the answer to a request that was sent before, with
// an outcome that is not known. What refuses the repetition (a credential that was
// withdrawn, a limit, a check) need not have looked at what became of the first one:
// unless a rule says so, a refusal is not the outcome of that.
func ClassifyAgain(rules []OutcomeRule, m *Message) Class {
	if c, ruled := ruled(rules, m); ruled {
		return c
	}
	c := Classify(m.Status)
	if c == ClassFinal && m.Status >= 400 {
		return ClassUnknown
	}
	return c
}

// ruled gives the class of the first rule that is true.
func ruled(rules []OutcomeRule, m *Message) (c Class, ok bool) {
	if len(rules) > 0 {
		vars := map[string]any{"response": m.vars()}
		for _, r := range rules {
			if yes, err := r.When.bool(vars); err == nil && yes {
				return r.Class, true
			}
		}
	}
	return ClassUnknown, false
}

// CaptureRule is a value taken from the request for reconciliation.
type CaptureRule struct {
	Name string
	From *Expr
}

// maxCaptured bounds one captured value, in bytes.
const maxCaptured = 1024

// Capture takes the values of the rules from a request. What is not there, or is
// not a single value, is left out: a missing reference must not stop a request.
func Capture(rules []CaptureRule, m *Message) map[string]string {
	if len(rules) == 0 {
		return nil
	}
	vars := map[string]any{"request": m.vars()}
	out := make(map[string]string, len(rules))
	for _, r := range rules {
		v, err := r.From.value(vars)
		if err != nil {
			continue
		}
		if s, ok := text(v); ok && len(s) <= maxCaptured {
			out[r.Name] = s
		}
	}
	return out
}

// text writes a single value as text.
func text(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case bool:
		return strconv.FormatBool(x), true
	case int64:
		return strconv.FormatInt(x, 10), true
	case uint64:
		return strconv.FormatUint(x, 10), true
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64), true
	}
	return "", false
}

// native turns values of CEL inside lists and maps into plain Go.
func native(v any) any {
	switch x := v.(type) {
	case ref.Val:
		return native(x.Value())
	case []ref.Val:
		out := make([]any, len(x))
		for i := range x {
			out[i] = native(x[i])
		}
		return out
	case map[ref.Val]ref.Val:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[fmt.Sprint(k.Value())] = native(e)
		}
		return out
	}
	return v
}

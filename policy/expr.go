package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"
)

// Expressions are CEL, compiled once at start. A bad one is a configuration
// error with its place; none can run longer than exprCost allows.

// exprCost bounds one evaluation, in CEL's own measure of work. A condition on a
// list of a thousand entries costs a few thousand.
const exprCost = 200_000

// Expr is a compiled expression.
type Expr struct {
	text string
	prg  cel.Program
}

// String returns the expression as it was written.
func (e *Expr) String() string { return e.text }

// ExprError is an expression that does not compile.
type ExprError struct {
	// Line and Column are places in the expression, from 1.
	Line, Column int
	Message      string
}

func (e *ExprError) Error() string {
	return fmt.Sprintf("at %d:%d of the expression: %s", e.Line, e.Column, e.Message)
}

// compile checks an expression over the named variables. kind is what it must
// be; nil is anything.
func compile(text string, kind *cel.Type, variables ...string) (*Expr, error) {
	opts := []cel.EnvOption{cel.DefaultUTCTimeZone(true), ext.Strings()}
	for _, v := range variables {
		opts = append(opts, cel.Variable(v, cel.MapType(cel.StringType, cel.DynType)))
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		var list []error
		for _, i := range issues.Errors() {
			list = append(list, &ExprError{i.Location.Line(), i.Location.Column() + 1, i.Message})
		}
		return nil, errors.Join(list...)
	}
	if kind != nil && !ast.OutputType().IsAssignableType(kind) && ast.OutputType().String() != cel.DynType.String() {
		return nil, &ExprError{1, 1, fmt.Sprintf("it gives %s, and %s is needed", ast.OutputType(), kind)}
	}
	prg, err := env.Program(ast, cel.CostLimit(exprCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, &ExprError{1, 1, err.Error()}
	}
	return &Expr{text, prg}, nil
}

// bool evaluates a condition. A condition that cannot be evaluated (a field that
// is not there, a body that is not JSON) is not true; why says what was wrong.
func (e *Expr) bool(vars map[string]any) (yes bool, why error) {
	v, _, err := e.prg.Eval(vars)
	if err != nil {
		return false, err
	}
	b, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("%s gives %s and not a truth value", e.text, v.Type())
	}
	return b, nil
}

// value evaluates an expression to a plain Go value, fit for encoding/json.
func (e *Expr) value(vars map[string]any) (any, error) {
	v, _, err := e.prg.Eval(vars)
	if err != nil {
		return nil, err
	}
	return v.ConvertToNative(reflect.TypeFor[any]())
}

// json evaluates an expression to JSON.
func (e *Expr) json(vars map[string]any) ([]byte, error) {
	v, _, err := e.prg.Eval(vars)
	if err != nil {
		return nil, err
	}
	return json.Marshal(native(v.Value()))
}

// Message is an HTTP message as expressions see it.
type Message struct {
	// Status is 0 for a request.
	Status int
	Method string
	Path   string
	Query  string
	// Header has canonical names; expressions see them in lower case, several
	// values joined by ", ".
	Header map[string][]string
	Body   []byte
}

// vars is the message as an expression's variable. Without a JSON body there is
// no "json" in it, so that a condition on it is not true.
func (m *Message) vars() map[string]any {
	headers := make(map[string]any, len(m.Header))
	for name, values := range m.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	v := map[string]any{"status": int64(m.Status), "method": m.Method, "path": m.Path, "query": m.Query, "headers": headers}
	if doc, err := decodeJSON(m.Body); err == nil {
		v["json"] = doc
	}
	return v
}

// decodeJSON reads one JSON document. Whole numbers stay exact where 64 bits
// hold them.
func decodeJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON document")
	}
	return numbers(v), nil
}

// numbers turns json.Number into what CEL computes with.
func numbers(v any) any {
	switch x := v.(type) {
	case json.Number:
		if i, err := x.Int64(); err == nil {
			return i
		}
		f, err := x.Float64()
		if err != nil {
			return x.String()
		}
		return f
	case map[string]any:
		for k := range x {
			x[k] = numbers(x[k])
		}
	case []any:
		for i := range x {
			x[i] = numbers(x[i])
		}
	}
	return v
}

package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Template is a URL with names in braces, each replaced by a percent-encoded
// value: {key}, {operation}, {attempt}, {captured.x}.
type Template struct {
	text  string
	parts []templatePart
}

type templatePart struct{ literal, name string }

// CompileTemplate reads a template. captured are the names that {captured.x}
// may use. A name that does not exist, and a URL that is not absolute http or
// https, are errors. The host is fixed: no name may stand before the path.
func CompileTemplate(text string, captured []string) (*Template, error) {
	t := &Template{text: text}
	rest := text
	for {
		before, after, ok := strings.Cut(rest, "{")
		t.parts = append(t.parts, templatePart{literal: before})
		if !ok {
			break
		}
		name, tail, ok := strings.Cut(after, "}")
		if !ok {
			return nil, fmt.Errorf("a { is not closed")
		}
		if c, is := strings.CutPrefix(name, "captured."); is {
			if !slices.Contains(captured, c) {
				return nil, fmt.Errorf("{%s} is not captured; add it under capture", name)
			}
		} else if !slices.Contains([]string{"key", "operation", "attempt"}, name) {
			return nil, fmt.Errorf("{%s} is not one of {key}, {operation}, {attempt}, {captured.NAME}", name)
		}
		t.parts = append(t.parts, templatePart{name: name})
		rest = tail
	}
	u, err := url.Parse(t.expand(func(string) string { return "x" }))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is not an absolute http or https URL", text)
	}
	if !strings.HasPrefix(t.parts[0].literal, u.Scheme+"://"+u.Host) || strings.Contains(u.Host, "{") {
		return nil, fmt.Errorf("a name in braces may not stand in the host of %q", text)
	}
	if len(t.parts) > 1 && !strings.HasPrefix(strings.TrimPrefix(t.parts[0].literal, u.Scheme+"://"+u.Host), "/") {
		return nil, fmt.Errorf("a name in braces may not stand in the host of %q", text)
	}
	return t, nil
}

func (t *Template) expand(value func(string) string) string {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.literal)
		if p.name != "" {
			b.WriteString(value(p.name))
		}
	}
	return b.String()
}

// Expand fills the template for an operation. It fails where a captured value is
// missing: a lookup with a hole in it would find something else.
func (t *Template) Expand(o *Operation) (string, error) {
	var missing []string
	out := t.expand(func(name string) string {
		var v string
		switch name {
		case "key":
			v = o.Key
		case "operation":
			v = o.ID
		case "attempt":
			v = fmt.Sprint(o.Attempt)
		default:
			c := strings.TrimPrefix(name, "captured.")
			var ok bool
			if v, ok = o.Captured[c]; !ok {
				missing = append(missing, name)
			}
		}
		// PathEscape leaves what a query would read otherwise; escape both.
		return strings.NewReplacer("&", "%26", "=", "%3D", "+", "%2B", ";", "%3B").Replace(url.PathEscape(v))
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("the request had no %s to look up by", strings.Join(missing, ", "))
	}
	return out, nil
}

// Operation is an operation as lookups and expressions see it.
type Operation struct {
	Key      string
	ID       string
	Attempt  int
	Method   string
	Path     string
	Captured map[string]string
}

func (o *Operation) vars() map[string]any {
	captured := make(map[string]any, len(o.Captured))
	for k, v := range o.Captured {
		captured[k] = v
	}
	return map[string]any{"key": o.Key, "id": o.ID, "attempt": int64(o.Attempt), "method": o.Method, "path": o.Path, "captured": captured}
}

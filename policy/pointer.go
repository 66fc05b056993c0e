package policy

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// CheckIgnore says what is wrong with an entry of FingerprintRule.Ignore where the
// body has the given form, or returns nil.
func CheckIgnore(form BodyKind, pointer string) error {
	if form == BodyRaw {
		return errors.New("cannot be ignored where bodies are compared byte by byte; choose another form with fingerprint.body")
	}
	tokens, err := parsePointer(pointer)
	if err != nil {
		return err
	}
	if len(tokens) > 1 && (form == BodyForm || form == BodyMultipart) {
		return errors.New("has more than one part, but a form has fields and nothing in them; write /name, and a / in the name as ~1")
	}
	return nil
}

// parsePointer cuts a JSON Pointer (RFC 6901) into its unescaped parts.
func parsePointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, errors.New("is the whole body; two requests would be the same whatever they say")
	}
	if pointer[0] != '/' {
		return nil, errors.New("is not a JSON Pointer: it must start with a slash, like /timestamp or /meta/request_id")
	}
	if !utf8.ValidString(pointer) {
		return nil, errors.New("is not UTF-8")
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, token := range tokens {
		for rest := token; ; {
			var found bool
			if _, rest, found = strings.Cut(rest, "~"); !found {
				break
			}
			if rest == "" || rest[0] != '0' && rest[0] != '1' {
				return nil, errors.New("has a ~ that is neither ~0 (a tilde) nor ~1 (a slash)")
			}
		}
		if token == "-" || token == "*" {
			return nil, errors.New("has a part that is - or *, and neither stands for every element; name the member, or give the element's number")
		}
		tokens[i] = strings.NewReplacer("~0", "~", "~1", "/").Replace(token)
	}
	return tokens, nil
}

// ignored is a tree of what is left out of a body. Nil leaves nothing out.
type ignored struct {
	whole bool
	below map[string]*ignored
}

// newIgnored makes the tree of pointers that CheckIgnore accepts.
func newIgnored(pointers []string) *ignored {
	if len(pointers) == 0 {
		return nil
	}
	root := new(ignored)
	for _, p := range pointers {
		tokens, err := parsePointer(p)
		if err != nil {
			continue // reported by prepare
		}
		at := root
		for _, token := range tokens {
			next := at.below[token]
			if next == nil {
				next = new(ignored)
				if at.below == nil {
					at.below = make(map[string]*ignored)
				}
				at.below[token] = next
			}
			at = next
		}
		at.whole = true
	}
	return root
}

// at gives what is left out below a member, element or field.
func (g *ignored) at(name string) *ignored {
	if g == nil {
		return nil
	}
	return g.below[name]
}

// all reports whether the thing itself is left out.
func (g *ignored) all() bool { return g != nil && g.whole }

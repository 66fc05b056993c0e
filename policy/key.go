package policy

import (
	"errors"
	"strings"

	"github.com/dunglas/httpsfv"
)

// MaxKeyLength is the longest key, in characters.
const MaxKeyLength = 255

// ErrKeyMissing is returned by ParseKey when the field is absent. A field that is
// present and empty is a *KeyError instead: its sender meant to bring a key, and
// must not be taken for one that did not.
var ErrKeyMissing = errors.New("no idempotency key; send one that is new for each logical operation and the same on its retries, such as a UUID")

// KeyError is returned for a key that is present but not usable.
type KeyError struct {
	// Reason says what is wrong and how to mend it. It holds nothing of the key.
	Reason string
}

func (e *KeyError) Error() string { return "idempotency key " + e.Reason }

// ParseKey reads the values of the key's header field and returns the key itself
// (DESIGN section 7): 1 to 255 visible ASCII characters, and not "." or "..". Those
// two are steps in a URL path: clients take them out of the path of a lookup, however
// they are encoded, so nobody could ask what became of such an operation.
//
// Two forms are read, and both give the same key, because a client library that
// starts to quote must not lose its earlier keys:
//
//   - an Item of type String (RFC 9651 section 3.3.3; the form that
//     draft-ietf-httpapi-idempotency-key-header requires), with its escapes undone;
//   - the bare key, as most providers document it.
//
// An Item may carry parameters, which RFC 9651 lets a recipient ignore. Here they
// are refused: none is defined for this field, and ignoring one would fold two keys
// that a client believes to be different into one, so that the second effect
// silently never happens.
//
// Errors: ErrKeyMissing for no value, *KeyError otherwise.
func ParseKey(values []string) (string, error) {
	switch {
	case len(values) == 0:
		return "", ErrKeyMissing
	case len(values) > 1:
		return "", &KeyError{"is sent more than once; send exactly one"}
	}
	// Whitespace around a field value is not part of it (RFC 9110 section 5.5).
	v := strings.Trim(values[0], " \t")

	key, reason := v, ""
	if strings.HasPrefix(v, `"`) {
		key, reason = unquoteKey(v)
	} else if strings.HasSuffix(v, `"`) {
		reason = "ends in a quote that nothing opened; quote the whole key or none of it"
	} else if strings.Contains(v, ",") {
		// Proxies join repeated fields with commas, so a comma may be two keys.
		reason = "has a comma, which reads as a list of keys; send exactly one, and put it in quotes if the comma belongs to it"
	}
	switch {
	case reason != "":
	case key == "":
		reason = "is empty; send 1 to 255 visible ASCII characters, such as a UUID"
	case !allVisible(key):
		reason = "has a space, control or non-ASCII character; use visible ASCII characters only, such as a UUID"
	case key == "." || key == "..":
		reason = "is only dots, which clients take out of the URL that looks it up; send another one, such as a UUID"
	case len(key) > MaxKeyLength:
		reason = "is longer than 255 characters; send a shorter one, such as a UUID"
	default:
		return key, nil
	}
	return "", &KeyError{reason}
}

// unquoteKey reads a value that starts with a quote; reason is set when it cannot.
func unquoteKey(v string) (key, reason string) {
	item, err := httpsfv.UnmarshalItem([]string{v})
	if err != nil {
		return "", `starts with a quote but is not one string of RFC 9651; close the quote, write \" and \\ for a quote and a backslash inside, use ASCII only, and put nothing after it`
	}
	if len(item.Params.Names()) > 0 {
		return "", "has parameters after the string; none are defined, send the string alone"
	}
	key, _ = item.Value.(string) // always a string: the parser goes by the first character
	return key, ""
}

// FormatKey writes a key that ParseKey accepted as a field value which ParseKey
// reads as the same key: bare where that is unambiguous, else as a quoted string.
// A key has one such form however it arrived, so an upstream that keeps keys by
// their bytes sees one key as well.
func FormatKey(key string) string {
	if !strings.Contains(key, ",") && !strings.HasPrefix(key, `"`) && !strings.HasSuffix(key, `"`) {
		return key
	}
	return `"` + quoteEscaper.Replace(key) + `"`
}

var quoteEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// HasKeyAlias reports whether header holds a field that is the key's name with
// underscores for hyphens, in any case, such as Idempotency_Key. CGI-like servers
// read both names as one variable, so such a request may carry a second key past
// us; it must be refused. name is the key's field name.
func HasKeyAlias(header map[string][]string, name string) bool {
	for field := range header {
		if len(field) == len(name) && isAlias(field, name) {
			return true
		}
	}
	return false
}

// isAlias compares names of equal length. Equal names are not aliases.
func isAlias(field, name string) bool {
	alias := false
	for i := range len(field) {
		switch {
		case lower(field[i]) == lower(name[i]):
		case field[i] == '_' && name[i] == '-':
			alias = true
		default:
			return false
		}
	}
	return alias
}

// NamedInConnection reports whether the values of a Connection field name header
// (comma-separated, any case). A key's field named there asks the next hop to drop
// it, so such a request must be refused; any other field named there is hop-by-hop.
func NamedInConnection(connection []string, header string) bool {
	for _, value := range connection {
		for value != "" {
			var name string
			name, value, _ = strings.Cut(value, ",")
			if equalFold(strings.Trim(name, " \t"), header) {
				return true
			}
		}
	}
	return false
}

package policy

import "strings"

// mediaType is a media type with its parameters, in the order they came. Type and
// names of parameters are in lower case.
type mediaType struct {
	name   string
	params []parameter
}

type parameter struct{ name, value string }

// contentType gives the media type of a request; ok is false where there is none,
// more than one, or one that is not well-formed.
func contentType(req *Request) (_ mediaType, ok bool) {
	values := req.sent("Content-Type")
	if len(values) != 1 {
		return mediaType{}, false
	}
	name, rest, _ := strings.Cut(values[0], ";")
	name = strings.ToLower(strings.Trim(name, " \t"))
	major, minor, found := strings.Cut(name, "/")
	if !found || !isToken(major) || !isToken(minor) {
		return mediaType{}, false
	}
	params, ok := parameters(values[0][len(values[0])-len(rest):], strings.Contains(values[0], ";"))
	return mediaType{name, params}, ok
}

// parameters reads what stands behind the first ";" of a field's value (RFC 9110,
// section 5.6.6). Refused is what readers do not agree on: a name twice, an empty
// parameter, one in pieces or with a character set (RFC 2231), and a backslash,
// which to some escapes and to some does not.
func parameters(s string, some bool) (list []parameter, ok bool) {
	for some {
		var name, value string
		if name, s, ok = strings.Cut(s, "="); !ok {
			return nil, false
		}
		name = strings.ToLower(strings.TrimLeft(name, " \t"))
		if !isToken(name) || strings.Contains(name, "*") {
			return nil, false
		}
		// PHP looks for the word wherever it is.
		if name != "boundary" && strings.Contains(name, "boundary") {
			return nil, false
		}
		for _, p := range list {
			if p.name == name {
				return nil, false
			}
		}
		if quoted, is := strings.CutPrefix(s, `"`); is {
			if value, s, ok = strings.Cut(quoted, `"`); !ok {
				return nil, false
			}
			var behind string
			if behind, s, some = strings.Cut(s, ";"); strings.Trim(behind, " \t") != "" {
				return nil, false
			}
		} else {
			value, s, some = strings.Cut(s, ";")
			if value = strings.TrimRight(value, " \t"); !isToken(value) {
				return nil, false
			}
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
			return nil, false
		}
		if name != "boundary" && strings.Contains(strings.ToLower(value), "boundary=") {
			return nil, false
		}
		list = append(list, parameter{name, value})
	}
	return list, true
}

// param gives the value of a parameter.
func (m mediaType) param(name string) (string, bool) {
	for _, p := range m.params {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

// utf8 reports whether the text is UTF-8 as far as the media type says.
func (m mediaType) utf8() bool {
	charset, ok := m.param("charset")
	return !ok || equalFold(charset, "utf-8")
}

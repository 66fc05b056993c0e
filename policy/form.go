package policy

import (
	"crypto/sha256"
	"strings"
)

// maxFields bounds the fields of a form and the parts of a multipart body. It
// belongs to the schemes. Common servers (PHP, Node's qs, Django) cut a form off at
// a number of fields or refuse it, 1000 by default, and where a form is cut its
// order matters.
const maxFields = 1000

// formSum digests a form (application/x-www-form-urlencoded): fields by name and
// value, in an order that is free where it means nothing (fieldList.write). Names and
// values are compared by their decoded bytes; a name without "=" is not one with an
// empty value. ok is false for a broken percent-encoding, a ";", which some servers
// take for "&", a character that should be percent-encoded, an empty field, and more
// fields than maxFields.
//
// What is hashed, scheme form1, is the field list; the digest of a field is SHA-256
// over the name and, behind a "=" byte, the value, or over the name and a "-" byte.
func formSum(text string, ignore *ignored) (sum [sha256.Size]byte, ok bool) {
	c := newCanon()
	var fields fieldList
	if text != "" {
		if strings.Count(text, "&") >= maxFields {
			return sum, false
		}
		for field := range strings.SplitSeq(text, "&") {
			name, value, assigned := strings.Cut(field, "=")
			name, ok1 := unescapeField(name)
			value, ok2 := unescapeField(value)
			if field == "" || !ok1 || !ok2 {
				return sum, false
			}
			if ignore.at(name).all() {
				continue
			}
			c.text(name)
			if assigned {
				c.kind('=')
				c.text(value)
			} else {
				c.kind('-')
			}
			fields = append(fields, formField{name, c.sum()})
		}
	}
	fields.write(c)
	return c.sum(), true
}

// unescapeField decodes a name or value of a form.
func unescapeField(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '+':
			b = append(b, ' ')
		case c == '%':
			c, ok := unhex(s[i:])
			if !ok {
				return "", false
			}
			b = append(b, c)
			i += 2
		case !visible(c) || c == ';':
			return "", false
		default:
			b = append(b, c)
		}
	}
	return string(b), true
}

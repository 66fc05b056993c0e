package policy

import "strings"

// A path can be spelled in many ways, and servers do not agree on which spellings
// are equal. The strict reading is RFC 3986's: only the encoding of an unreserved
// character may be undone. The loose reading undoes what some server somewhere
// undoes: every encoding, that of the slash included; ";" parameters are dropped,
// as servlet containers do; slashes in a row are one, as nginx has it.
//
// The case of letters is not touched in either: it distinguishes resources on most
// servers, and two rules may differ by it.

// kept marks an encoding that the strict reading leaves alone: %2F differs from a slash.
const kept = 0x100

// pathReader gives the characters of a path in one reading: a byte, or an encoded
// byte with kept set.
type pathReader struct {
	rest  string
	loose bool
	slash bool // loose: the last character was a slash
}

// next returns the next character; ok is false at the end.
func (p *pathReader) next() (c uint16, ok bool) {
	for p.rest != "" {
		raw := p.rest[0]
		c, p.rest = p.cut()
		if p.loose {
			if raw == ';' {
				p.skipParameter()
				continue
			}
			again := c == '/' && p.slash
			p.slash = c == '/'
			if again {
				continue
			}
		}
		return c, true
	}
	return 0, false
}

// cut takes one character off the front. A broken encoding, which CheckTarget
// refuses, counts as its bytes.
func (p *pathReader) cut() (c uint16, rest string) {
	b, ok := unhex(p.rest)
	if !ok {
		return uint16(p.rest[0]), p.rest[1:]
	}
	c, rest = uint16(b), p.rest[3:]
	if !p.loose && !unreserved(b) {
		c |= kept
	}
	return c, rest
}

// skipParameter drops what is left of the segment, up to a slash in either spelling.
func (p *pathReader) skipParameter() {
	for p.rest != "" {
		c, rest := p.cut()
		if c == '/' {
			return
		}
		p.rest = rest
	}
}

// hasPathPrefix reports whether path starts with prefix and, where prefix does not
// end in a slash, ends there or goes on with one.
func hasPathPrefix(path, prefix string, loose bool) bool {
	if prefix == "" || prefix == "/" {
		return true
	}
	of, want := pathReader{rest: path, loose: loose}, pathReader{rest: prefix, loose: loose}
	var last uint16
	for {
		w, ok := want.next()
		if !ok {
			break
		}
		if c, ok := of.next(); !ok || c != w {
			return false
		}
		last = w
	}
	c, more := of.next()
	return last == '/' || !more || c == '/'
}

// hasPlainPrefix is hasPathPrefix in the strict reading for two paths without an
// encoding, where it comes down to comparing bytes.
func hasPlainPrefix(path, prefix string, _ bool) bool {
	if prefix == "" || prefix == "/" {
		return true
	}
	return strings.HasPrefix(path, prefix) &&
		(prefix[len(prefix)-1] == '/' || len(path) == len(prefix) || path[len(prefix)] == '/')
}

// ambiguous reports whether the two readings of path can differ.
func ambiguous(path string) bool {
	slash := false
	for i := 0; i < len(path); i++ {
		b := path[i]
		if b == ';' || b == '/' && slash {
			return true
		}
		if b == '%' {
			if decoded, ok := unhex(path[i:]); ok && !unreserved(decoded) {
				return true
			}
		}
		slash = b == '/'
	}
	return false
}

// plainPath spells a path as the strict reading compares it: encodings of
// unreserved characters undone, the others in upper case.
func plainPath(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for p := (pathReader{rest: path}); ; {
		c, ok := p.next()
		switch {
		case !ok:
			return b.String()
		case c&kept != 0:
			b.Write([]byte{'%', digits[c>>4&0xf], digits[c&0xf]})
		default:
			b.WriteByte(byte(c))
		}
	}
}

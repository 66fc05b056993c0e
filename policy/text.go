package policy

// Byte classes and folds shared by the rules. All of them are ASCII only on
// purpose: Unicode folding would make names equal that no HTTP peer takes for
// equal (the Kelvin sign folds to k).

// visible reports whether b is a visible ASCII character, 0x21 to 0x7E.
func visible(b byte) bool { return 0x21 <= b && b <= 0x7e }

// allVisible reports whether s has only visible ASCII characters.
func allVisible(s string) bool {
	for i := range len(s) {
		if !visible(s[i]) {
			return false
		}
	}
	return true
}

func alphanumeric(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// unreserved is RFC 3986 section 2.3: the characters whose percent-encoding never
// changes what a path means.
func unreserved(b byte) bool {
	return alphanumeric(b) || b == '-' || b == '.' || b == '_' || b == '~'
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if alphanumeric(s[i]) {
			continue
		}
		switch s[i] {
		case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		default:
			return false
		}
	}
	return s != ""
}

// isName reports whether s can name a route or a caller: 1 to 64 letters, digits,
// dots, underscores and hyphens. Names become metric labels, log values and parts
// of store keys, so nothing in them may need quoting.
func isName(s string) bool {
	for i := range len(s) {
		if !alphanumeric(s[i]) && s[i] != '.' && s[i] != '_' && s[i] != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + ('a' - 'A')
	}
	return b
}

// equalFold compares without regard to ASCII case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// unhex decodes the percent-encoding at the start of s; ok is false where there is none.
func unhex(s string) (b byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	hi, ok1 := hexDigit(s[1])
	lo, ok2 := hexDigit(s[2])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(b byte) (byte, bool) {
	switch b = lower(b); {
	case '0' <= b && b <= '9':
		return b - '0', true
	case 'a' <= b && b <= 'f':
		return b - 'a' + 10, true
	}
	return 0, false
}

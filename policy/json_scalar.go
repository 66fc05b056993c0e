package policy

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// str reads a string and gives it unescaped.
func (p *jsonParser) str() (string, bool) {
	if !p.next('"') {
		return "", false
	}
	from := p.pos
	for ; p.pos < len(p.text); p.pos++ {
		switch b := p.text[p.pos]; {
		case b == '"':
			s := p.text[from:p.pos]
			p.pos++
			return s, utf8.ValidString(s)
		case b == '\\':
			return p.escaped(from)
		case b < ' ':
			return "", false
		}
	}
	return "", false
}

// escaped reads the rest of a string in which an escape was met.
func (p *jsonParser) escaped(from int) (string, bool) {
	b := append(p.scratch[:0], p.text[from:p.pos]...)
	defer func() { p.scratch = b[:0] }()
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		p.pos++
		switch {
		case c == '"':
			return string(b), utf8.Valid(b)
		case c < ' ':
			return "", false
		case c != '\\':
			b = append(b, c)
			continue
		case p.pos == len(p.text):
			return "", false
		}
		c = p.text[p.pos]
		p.pos++
		switch c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, ok := p.codePoint()
			if !ok {
				return "", false
			}
			b = utf8.AppendRune(b, r)
		default:
			return "", false
		}
	}
	return "", false
}

// codePoint reads what stands behind \u, which may be a surrogate pair. Half of a
// pair is no character: decoders replace it, and then two texts become one.
func (p *jsonParser) codePoint() (rune, bool) {
	r, ok := p.unit()
	if !ok || r < 0xd800 || r > 0xdfff {
		return r, ok
	}
	if r >= 0xdc00 || !p.next('\\') || !p.next('u') {
		return 0, false
	}
	low, ok := p.unit()
	return 0x10000 + (r-0xd800)<<10 + (low - 0xdc00), ok && low >= 0xdc00 && low <= 0xdfff
}

// unit reads four hexadecimal digits.
func (p *jsonParser) unit() (r rune, ok bool) {
	if len(p.text)-p.pos < 4 {
		return 0, false
	}
	for range 4 {
		d, ok := hexDigit(p.text[p.pos])
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
		p.pos++
	}
	return r, true
}

// jsonNumber is a number by its exact decimal value: ±digits × 10^exponent, where
// digits neither begin nor end with a zero. Zero has none, and no sign: 0, -0, 0.0
// and 0e9 are one number.
//
// No binary arithmetic comes near it: integers above 2^53 stay different. 1, 1.0 and
// 1e0 are one number, because the languages that read JSON and write it again turn
// each into another (JSON.stringify(1.0) is 1), and RFC 8785 has one form for them.
//
// With an exponent of more than 18 digits a number is not computed with, but compared
// as it was written.
type jsonNumber struct {
	size     int // of its text
	far      string
	negative bool
	// The digits come in two parts, cut where the decimal point was.
	whole, fraction string
	exponent        int64
}

const maxExponentDigits = 18

// scanNumber reads the number at the start of s.
func scanNumber(s string) (n jsonNumber, ok bool) {
	i := 0
	digits := func() string {
		from := i
		for i < len(s) && '0' <= s[i] && s[i] <= '9' {
			i++
		}
		return s[from:i]
	}
	if n.negative = strings.HasPrefix(s, "-"); n.negative {
		i++
	}
	n.whole = digits()
	if n.whole == "" || n.whole[0] == '0' && len(n.whole) > 1 {
		return n, false
	}
	if i < len(s) && s[i] == '.' {
		i++
		if n.fraction = digits(); n.fraction == "" {
			return n, false
		}
	}
	exponent, down := "", false
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			down = s[i] == '-'
			i++
		}
		if exponent = digits(); exponent == "" {
			return n, false
		}
	}
	n.size = i
	n.normalize(s[:i], strings.TrimLeft(exponent, "0"), down)
	return n, true
}

// normalize drops the zeros at both ends of the digits.
func (n *jsonNumber) normalize(text, exponent string, down bool) {
	whole, fraction := n.whole, n.fraction
	if whole == "0" {
		n.whole, n.fraction = "", strings.TrimLeft(fraction, "0")
	}
	// behind is how many digits are left behind the decimal point; it is negative
	// where zeros in front of it went.
	n.fraction = strings.TrimRight(n.fraction, "0")
	behind := len(strings.TrimRight(fraction, "0"))
	if n.fraction == "" {
		n.whole = strings.TrimRight(n.whole, "0")
		behind = len(n.whole) - len(whole)
	}
	switch {
	case n.whole == "" && n.fraction == "":
		*n = jsonNumber{size: n.size}
	case len(exponent) > maxExponentDigits:
		*n = jsonNumber{size: n.size, far: text}
	default:
		if exponent != "" {
			n.exponent, _ = strconv.ParseInt(exponent, 10, 64) // it has at most 18 digits
		}
		if down {
			n.exponent = -n.exponent
		}
		n.exponent -= int64(behind)
	}
}

func (n *jsonNumber) write(c *canon) {
	if n.far != "" {
		c.kind('N')
		c.text(n.far)
		return
	}
	c.kind('n')
	if n.negative {
		c.kind('-')
	} else {
		c.kind('+')
	}
	c.number(uint64(n.exponent))
	c.number(uint64(len(n.whole) + len(n.fraction)))
	c.plain(n.whole)
	c.plain(n.fraction)
}

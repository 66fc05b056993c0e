package policy

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is compared as JSON. They belong to the scheme.
const (
	maxJSONDepth   = 512     // arrays and objects in each other
	maxJSONMembers = 1 << 16 // of all the objects that are open at one place of the text
)

// jsonSum digests a JSON text (RFC 8259) by its value: members are free in their
// order, elements are not, null is not absence, strings are equal by their code
// points and numbers by their exact decimal value. ok is false for what is not such
// a text by the letter, and for what servers take in different ways: a member name
// twice, or twice but for the case of letters, which Go and .NET take for one;
// half a surrogate pair; a byte order mark.
//
// The encoding that is hashed, scheme json1. Numbers are 8 bytes, big-endian; a text
// has its length in front:
//
//	null, true, false   z, t, f
//	string              s text
//	number              n sign exponent digits: its value is digits × 10^exponent
//	number, far out     N text, as it was written: see jsonNumber
//	array               [ elements ]
//	ignored element     i, so that the others keep their place
//	object              { count digests, sorted; each is SHA-256 over name and value
//
// An ignored member is not there.
func jsonSum(text string, ignore *ignored) (sum [sha256.Size]byte, ok bool) {
	p := jsonParser{text: text}
	c := p.canon(0)
	p.space()
	if !p.value(c, ignore, 0) {
		return sum, false
	}
	p.space()
	if p.pos != len(text) {
		return sum, false
	}
	return c.sum(), true
}

// jsonParser reads one text. Its methods return false at the first doubt.
type jsonParser struct {
	text    string
	pos     int
	members []jsonMember // of all open objects, the outermost first
	canons  []*canon     // by depth
	scratch []byte
}

// jsonMember is a member of an object that is being read.
type jsonMember struct {
	name    string
	sum     [sha256.Size]byte
	ignored bool
}

// canon gives the canon in use at a depth.
func (p *jsonParser) canon(depth int) *canon {
	for len(p.canons) <= depth {
		p.canons = append(p.canons, newCanon())
	}
	return p.canons[depth]
}

func (p *jsonParser) space() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// next takes a byte if it is the next one.
func (p *jsonParser) next(b byte) bool {
	if p.pos < len(p.text) && p.text[p.pos] == b {
		p.pos++
		return true
	}
	return false
}

func (p *jsonParser) value(c *canon, ignore *ignored, depth int) bool {
	if p.pos == len(p.text) {
		return false
	}
	switch b := p.text[p.pos]; b {
	case '{':
		p.pos++
		return depth < maxJSONDepth && p.object(c, ignore, depth)
	case '[':
		p.pos++
		return depth < maxJSONDepth && p.array(c, ignore, depth)
	case '"':
		s, ok := p.str()
		c.kind('s')
		c.text(s)
		return ok
	case 'n':
		return p.literal(c, "null", 'z')
	case 't':
		return p.literal(c, "true", 't')
	case 'f':
		return p.literal(c, "false", 'f')
	default:
		n, ok := scanNumber(p.text[p.pos:])
		p.pos += n.size
		n.write(c)
		return ok
	}
}

func (p *jsonParser) literal(c *canon, word string, kind byte) bool {
	if !strings.HasPrefix(p.text[p.pos:], word) {
		return false
	}
	p.pos += len(word)
	c.kind(kind)
	return true
}

func (p *jsonParser) array(c *canon, ignore *ignored, depth int) bool {
	c.kind('[')
	p.space()
	if p.next(']') {
		c.kind(']')
		return true
	}
	for i := 0; ; i++ {
		var below *ignored
		if ignore != nil {
			below = ignore.at(strconv.Itoa(i))
		}
		p.space()
		if below.all() {
			if !p.skip(depth) {
				return false
			}
			c.kind('i')
		} else if !p.value(c, below, depth+1) {
			return false
		}
		p.space()
		if p.next(']') {
			c.kind(']')
			return true
		}
		if !p.next(',') {
			return false
		}
	}
}

// skip reads an ignored value: it must be one.
func (p *jsonParser) skip(depth int) bool {
	c := p.canon(depth + 1)
	ok := p.value(c, nil, depth+1)
	c.sum()
	return ok
}

func (p *jsonParser) object(c *canon, ignore *ignored, depth int) bool {
	first := len(p.members)
	p.space()
	for more := !p.next('}'); more; {
		p.space()
		name, ok := p.str()
		if p.space(); !ok || !p.next(':') || len(p.members) == maxJSONMembers {
			return false
		}
		m := jsonMember{name: name}
		below := ignore.at(name)
		m.ignored = below.all()
		at := len(p.members)
		p.members = append(p.members, m)
		mc := p.canon(depth + 1)
		mc.text(name)
		p.space()
		if !p.value(mc, below, depth+1) {
			return false
		}
		p.members[at].sum = mc.sum()
		p.space()
		if more = p.next(','); !more && !p.next('}') {
			return false
		}
	}
	members := p.members[first:]
	p.members = p.members[:first]
	if !distinct(members) {
		return false
	}
	members = slices.DeleteFunc(members, func(m jsonMember) bool { return m.ignored })
	slices.SortFunc(members, func(a, b jsonMember) int { return bytes.Compare(a.sum[:], b.sum[:]) })
	c.kind('{')
	c.number(uint64(len(members)))
	for i := range members {
		c.digest(&members[i].sum)
	}
	return true
}

// distinct reports whether no two members have the same name, whatever the case of
// its letters.
func distinct(members []jsonMember) bool {
	if len(members) < 2 {
		return true
	}
	names := make([]string, len(members))
	for i := range members {
		names[i] = fold(members[i].name)
	}
	slices.Sort(names)
	return len(slices.Compact(names)) == len(members)
}

// fold makes names equal that differ in the case of letters only.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		if r < utf8.RuneSelf {
			return r
		}
		// The letters that fold to each other form a ring; its least stands for all.
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		if 'A' <= least && least <= 'Z' {
			least += 'a' - 'A'
		}
		return least
	}, s)
}

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// refJSON reads a text with encoding/json and without what jsonSum is made of. ok is
// false for what jsonSum must refuse.
func refJSON(text string) (v any, ok bool) {
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) || halfSurrogate(text) {
		return nil, false
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	v, ok = refValue(d, 0)
	return v, ok
}

type refMember struct {
	name  string
	value any
}

// refValue gives nil, bool, string, json.Number, []any or []refMember.
func refValue(d *json.Decoder, depth int) (any, bool) {
	token, err := d.Token()
	if err != nil {
		return nil, false
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, ok := refValue(d, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		d.Token()
		return list, depth < 512
	case json.Delim('{'):
		object := []refMember{}
		for d.More() {
			name, _ := d.Token()
			for _, m := range object {
				if strings.EqualFold(m.name, name.(string)) {
					return nil, false
				}
			}
			v, ok := refValue(d, depth+1)
			if !ok {
				return nil, false
			}
			object = append(object, refMember{name.(string), v})
		}
		d.Token()
		return object, depth < 512
	}
	return token, true
}

var escape = regexp.MustCompile(`\\(u[0-9A-Fa-f]{4}|.)`)

// halfSurrogate reports whether an escape is half of a pair.
func halfSurrogate(text string) bool {
	high := -1 // where the low half must stand
	for _, at := range escape.FindAllStringIndex(text, -1) {
		e := strings.ToLower(text[at[0]:at[1]])
		isHigh, isLow := e >= `\ud800` && e <= `\udbff`, e >= `\udc00` && e <= `\udfff`
		if (isLow || high >= 0) && !(isLow && high == at[0]) {
			return true
		}
		if high = -1; isHigh {
			high = at[1]
		}
	}
	return high >= 0
}

// refNumber gives a number's digits and exponent, however large, in lowest terms.
// far is whether jsonSum does not compute with it.
func refNumber(n json.Number) (digits, exponent *big.Int, far bool) {
	mantissa, exp, _ := strings.Cut(strings.ToLower(string(n)), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits, _ = new(big.Int).SetString(whole+fraction, 10)
	exponent = new(big.Int)
	if exp != "" {
		exponent.SetString(exp, 10)
	}
	far = len(new(big.Int).Abs(exponent).String()) > 18
	if digits.Sign() == 0 {
		return digits, new(big.Int), false
	}
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	for ten, rest := big.NewInt(10), new(big.Int); ; {
		var next big.Int
		if next.DivMod(digits, ten, rest); rest.Sign() != 0 {
			return digits, exponent, far
		}
		digits.Set(&next)
		exponent.Add(exponent, big.NewInt(1))
	}
}

// refEqual compares by value. far is whether a number was met that is compared as it
// was written.
func refEqual(a, b any) (equal, far bool) {
	switch a := a.(type) {
	case json.Number:
		bn, is := b.(json.Number)
		if !is {
			return false, false
		}
		d1, e1, far1 := refNumber(a)
		d2, e2, far2 := refNumber(bn)
		return d1.Cmp(d2) == 0 && e1.Cmp(e2) == 0, far1 || far2
	case []any:
		bl, is := b.([]any)
		if !is || len(a) != len(bl) {
			return false, false
		}
		equal = true
		for i := range a {
			e, f := refEqual(a[i], bl[i])
			equal, far = equal && e, far || f
		}
		return equal, far
	case []refMember:
		bo, is := b.([]refMember)
		if !is || len(a) != len(bo) {
			return false, false
		}
		for _, m := range a {
			found := false
			for _, o := range bo {
				if m.name == o.name {
					e, f := refEqual(m.value, o.value)
					found, far = e, far || f
				}
			}
			if !found {
				return false, far
			}
		}
		return true, far
	}
	switch b.(type) {
	case json.Number, []any, []refMember:
		return false, false
	}
	return a == b, false
}

// respell writes a value in another way that means the same.
func respell(b *bytes.Buffer, v any, r *rand.Rand) {
	space := func() { b.WriteString([]string{"", "", " ", "\n", "\t\r"}[r.IntN(5)]) }
	space()
	defer space()
	switch v := v.(type) {
	case string:
		b.WriteByte('"')
		for _, c := range v {
			switch {
			case c > 0xffff && r.IntN(2) == 0:
				fmt.Fprintf(b, `\u%04x\u%04X`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
			case c < ' ' || c == '"' || c == '\\' || c <= 0xffff && r.IntN(3) == 0:
				fmt.Fprintf(b, `\u%04x`, c)
			default:
				b.WriteRune(c)
			}
		}
		b.WriteByte('"')
	case json.Number:
		digits, exponent, far := refNumber(v)
		if far || len(exponent.String()) >= 18 {
			b.WriteString(string(v)) // another spelling may be too far out
			return
		}
		switch shift := r.IntN(4); {
		case digits.Sign() == 0:
			b.WriteString([]string{"0", "-0", "0.00", "-0e7"}[shift])
		case shift == 0:
			fmt.Fprintf(b, "%d%se%d", digits, strings.Repeat("0", 3), exponent.Sub(exponent, big.NewInt(3)))
		case shift == 1:
			fmt.Fprintf(b, "%d.00E%+d", digits, exponent)
		default:
			b.WriteString(string(v))
		}
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			respell(b, e, r)
		}
		space()
		b.WriteByte(']')
	case []refMember:
		b.WriteByte('{')
		for i, j := range r.Perm(len(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			respell(b, v[j].name, r)
			b.WriteByte(':')
			respell(b, v[j].value, r)
		}
		space()
		b.WriteByte('}')
	default:
		json.NewEncoder(b).Encode(v)
	}
}

// FuzzJSONByReference: jsonSum takes exactly what it should, says the same of two
// texts exactly when they have the same value, and always of two spellings of one.
func FuzzJSONByReference(f *testing.F) {
	for _, text := range []string{
		`{"a":1,"b":[null,true,"x",{"c":-1.50e3}]}`, `{"b":[null,true,"\u0078",{"c":-1500}],"a":1.0}`, `9007199254740993`, `9007199254740992`, `{"a":1,"A":2}`, `{"a":1,"a":1}`,
		`"\ud83d\ude00"`, `"\ud83d"`, `"\ude00"`, `"\ud83d\ud83d\ude00"`, `"\\ud800"`, `"\\\ud800"`, `1e99999999999999999999`, `0e99999999999999999999`, `1E+400`, `-0`, `0.10`, ` [ ] `, `[[[[]]]]`, `{"":{"":{}}}`, `01`, "\"\xff\"", "\"\u212a\"", `{"k":0,"` + "\u212a" + `":0}`, `"\b\f\n\r\t\/"`, `[1,]`, `{"a"}`, "\ufeff1",
	} {
		f.Add(text, `{"a":1}`, uint64(1))
		f.Add(text, text+" ", uint64(2))
	}
	f.Fuzz(func(t *testing.T, a, b string, seed uint64) {
		if len(a) > 4<<10 || len(b) > 4<<10 {
			return // the reference is slow
		}
		va, oka := refJSON(a)
		vb, okb := refJSON(b)
		for text, ok := range map[string]bool{a: oka, b: okb} {
			if sum := sumJSON(text); (sum != "") != ok {
				t.Fatalf("taken for JSON: %v; by the reference: %v\n%q", sum != "", ok, text)
			}
		}
		if !oka {
			return
		}
		if okb {
			equal, far := refEqual(va, vb)
			if got := sumJSON(a) == sumJSON(b); got != equal && !(far && !got) {
				t.Fatalf("one digest: %v; one value: %v\n%q\n%q", got, equal, a, b)
			}
		}
		var other bytes.Buffer
		respell(&other, va, rand.New(rand.NewPCG(seed, 0)))
		if sumJSON(other.String()) != sumJSON(a) {
			t.Fatalf("two spellings of one value differ\n%q\n%q", a, other.String())
		}
	})
}

var refNumberText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// FuzzJSONNumbers: two numbers have one digest exactly when they have one value.
func FuzzJSONNumbers(f *testing.F) {
	for _, n := range []string{"0", "-0.0", "1", "1.0", "10e-1", "123.4560", "1e18", "1e999999999999999999", "1e1000000000000000000", "0.1e1000000000000000000", "-1e-999999999999999999", "100", "1e2", "9007199254740993", "0.000e9", "1.", "00", "1e", "-"} {
		f.Add(n, "1")
		f.Add(n, "1.000")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > 200 || len(b) > 200 {
			return
		}
		var refs []json.Number
		for _, text := range []string{a, b} {
			n, ok := scanNumber(text)
			whole := ok && n.size == len(text)
			isNumber := refNumberText.MatchString(text)
			if whole != isNumber {
				t.Fatalf("%q is a number: %v, by the reference: %v", text, whole, isNumber)
			}
			if !whole {
				return
			}
			refs = append(refs, json.Number(text))
		}
		equal, far := refEqual(refs[0], refs[1])
		if got := sumJSON(a) == sumJSON(b); got != equal && !(far && !got) {
			t.Fatalf("%s and %s have one digest: %v, one value: %v", a, b, got, equal)
		}
	})
}

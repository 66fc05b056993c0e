package policy

import (
	"strings"
	"testing"
)

// sumJSON is the digest of a text, or "" for what is no JSON here.
func sumJSON(text string, ignore ...string) string {
	sum, ok := jsonSum(text, newIgnored(ignore))
	if !ok {
		return ""
	}
	return string(sum[:])
}

func TestJSONTextsOfOneMeaning(t *testing.T) {
	for name, texts := range map[string][]string{
		"order of members":     {`{"a":1,"b":[2,{"c":3,"d":4}]}`, `{"b":[2,{"d":4,"c":3}],"a":1}`},
		"white space":          {`{"a":[1,2]}`, " {\t\"a\" :\r\n[ 1 , 2 ] } \n"},
		"escapes":              {`{"aé/":"\n\"\\😀"}`, `{"a\u00e9\/":"\u000A\u0022\u005c\uD83D\uDE00"}`, `{"\u0061é/":"\u000a\"\\\ud83d\ude00"}`},
		"short escapes":        {`"\b\f\n\r\t"`, `"\u0008\u000c\u000a\u000d\u0009"`},
		"one":                  {`1`, `1.0`, `1e0`, `1E+0`, `1.000e-0`, `10e-1`, `0.1e1`, `0.01E2`, `100e-00002`},
		"a fraction":           {`-12.5`, `-12.50`, `-125e-1`, `-0.125e2`, `-1250.0e-2`},
		"a hundred":            {`100`, `1e2`, `100.0`, `1.00e2`, `0.00001e7`},
		"zero has no sign":     {`0`, `-0`, `0.0`, `-0.00`, `0e5`, `-0E-7`, `0e99999999999999999999999`},
		"a large exponent":     {`1e999999999999999999`, `10e999999999999999998`, `1000.0E+0999999999999999996`},
		"digits beyond floats": {`123456789012345678901234567890.000`, `1234567890123456789012345678900e-1`},
		"empty":                {`{}`, ` { } `},
	} {
		for _, text := range texts {
			if got := sumJSON(text); got == "" || got != sumJSON(texts[0]) {
				t.Errorf("%s: %s and %s differ", name, text, texts[0])
			}
		}
	}
}

func TestJSONTextsOfDifferentMeaning(t *testing.T) {
	// No two of all of these are the same.
	texts := []string{
		`null`, `true`, `false`, `0`, `1`, `-1`, `10`, `0.1`, `1e1000`, `1e-1000`, `1e1001`, `"0"`, `"1"`, `"null"`, `"true"`, `""`, `" "`, `[]`, `{}`, `[[]]`, `[{}]`, `{"":{}}`,
		// Integers beyond 2^53, and decimals that one float64 stands for.
		`9007199254740992`, `9007199254740993`, `9007199254740994`, `90071992547409930`, `0.1000000000000000055511151231257827`, `1.0000000000000000000000001`, `18446744073709551616`, `18446744073709551617`,
		// Exponents that no number has room for.
		`1e99999999999999999999`, `1e-99999999999999999999`, `1e99999999999999999998`, `2e99999999999999999999`, `-1e99999999999999999999`, `1e999999999999999999`,
		// The order of elements, and what belongs to what.
		`[1,2]`, `[2,1]`, `[12]`, `[1,2,null]`, `[[1],2]`, `[[1,2]]`, `[1,[2]]`, `["1","2"]`, `["1,2"]`, `[1,2,[]]`, `[[],[[]]]`, `[[[],[]]]`, `[[],[],[]]`,
		`{"a":1}`, `{"a":"1"}`, `{"a":null}`, `{"b":1}`, `{"a":{"b":1}}`, `{"a":1,"b":null}`, `{"a":1,"b":2}`, `{"a":2,"b":1}`, `[{"a":1},{"b":2}]`, `[{"a":1,"b":2}]`, `["a",1,"b",2]`, `{"A":1}`,
		`{"a":[1,2]}`, `{"a":[2,1]}`, `{"a":{"b":{}},"c":1}`, `{"a":{"b":{},"c":1}}`, `{"a":{"b":{"c":1}}}`,
		// Texts that look alike.
		`"é"`, `"e\u0301"`, `"K"`, `"` + "\u212a" + `"`, `"a\u0000"`, `"a"`, `"a\u0000\u0000"`, `"\ufeff"`, `"😀"`, `"�"`,
	}
	seen := make(map[string]string)
	for _, text := range texts {
		sum := sumJSON(text)
		if sum == "" {
			t.Errorf("%s is not taken for JSON", text)
			continue
		}
		if other, is := seen[sum]; is {
			t.Errorf("%s and %s are one", text, other)
		}
		seen[sum] = text
	}
}

func TestWhatIsNotBeyondDoubtJSON(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                       "",
		"white space":                   " \n",
		"a name twice":                  `{"a":1,"a":1}`,
		"a name twice, escaped":         `{"a":1,"\u0061":1}`,
		"a name twice, deep":            `[{"x":{"b":1,"c":2,"b":1}}]`,
		"a name twice but for case":     `{"amount":1,"Amount":2}`,
		"the same with the Kelvin sign": `{"k":1,"` + "\u212a" + `":2}`,
		"the same beyond ASCII":         `{"é":1,"É":2}`,
		"the same by three letters":     `{"ς":1,"Σ":2}`,
		"an empty name twice":           `{"":1,"":2}`,
		"a name twice, once ignored":    `{"ts":1,"ts":2}`,
		"invalid UTF-8":                 "\"\xff\"",
		"invalid UTF-8 behind escape":   "\"\\n\xff\"",
		"a surrogate in UTF-8":          "\"\xed\xa0\x80\"",
		"invalid UTF-8 in a name":       "{\"\xc3\":1}",
		"a high surrogate":              `"\ud83d"`,
		"a low surrogate":               `"\ude00"`,
		"low, low":                      `"\ude00\ude00"`,
		"high, beyond low":              `"\ud83d\ue000"`,
		"high, high":                    `"\ud83d\ud83d"`,
		"high, letter":                  `"\ud83d\u0061"`,
		"high, no escape":               `"\ud83dxde00"`,
		"low, high":                     `"\ude00\ud83d"`,
		"a surrogate in a name":         `{"\ud83d":1}`,
		"a byte order mark":             "\ufeff{}",
		"something behind it":           `{} {}`,
		"garbage behind it":             `{}x`,
		"NUL behind it":                 "{}\x00",
		"a comma too many":              `[1,]`,
		"a comma too many in an object": `{"a":1,}`,
		"no comma":                      `[1 2]`,
		"only commas":                   `[,]`,
		"not closed":                    `[1`,
		"not closed, object":            `{"a":1`,
		"wrongly closed":                `[1}`,
		"a name without quotes":         `{a:1}`,
		"a name that is a number":       `{1:1}`,
		"no value":                      `{"a":}`,
		"no colon":                      `{"a" 1}`,
		"single quotes":                 `'a'`,
		"a comment":                     `{}//x`,
		"upper case":                    `NULL`,
		"a word cut short":              `nul`,
		"a word too long":               `nulll`,
		"NaN":                           `NaN`,
		"Infinity":                      `-Infinity`,
		"a plus":                        `+1`,
		"a leading zero":                `01`,
		"a leading zero, negative":      `-01`,
		"a minus alone":                 `-`,
		"no digit before the point":     `.5`,
		"no digit behind the point":     `1.`,
		"no digit in the exponent":      `1e`,
		"no digit behind the sign":      `1e+`,
		"hexadecimal":                   `0x10`,
		"a separator":                   `1_000`,
		"a line feed in a string":       "\"a\nb\"",
		"a tab behind an escape":        "\"\\n\t\"",
		"an unknown escape":             `"\x41"`,
		"an escape cut short":           `"\u00`,
		"no digit in an escape":         `"\u00g0"`,
		"an escape alone":               `"\`,
		"a string not closed":           `"abc`,
		"a form feed between":           "[1,\f2]",
		"a no-break space between":      "[1,\u00a02]",
		"too deep":                      strings.Repeat("[", 513) + strings.Repeat("]", 513),
		"too deep, objects":             strings.Repeat(`{"a":`, 513) + "1" + strings.Repeat("}", 513),
		"too deep, ignored":             `{"ts":` + strings.Repeat("[", 512) + strings.Repeat("]", 512) + "}",
		"ignored and broken":            `{"ts":[1,]}`,
		"ignored with a name twice":     `{"ts":{"a":1,"a":1}}`,
	} {
		if sumJSON(text, "/ts") != "" {
			t.Errorf("%s: %.60q was taken for JSON", name, text)
		}
	}
	if sumJSON(`[{"a":1,"a":1}]`, "/0") != "" {
		t.Error("an ignored element with a name twice was taken for JSON")
	}
	for name, text := range map[string]string{
		"just not too deep":      strings.Repeat("[", 512) + strings.Repeat("]", 512),
		"names in other objects": `[{"a":1},{"a":2,"b":{"A":1}}]`,
	} {
		if sumJSON(text) == "" {
			t.Errorf("%s: %.60q was not taken for JSON", name, text)
		}
	}
}

func TestManyMembersAreNotHeld(t *testing.T) {
	object := func(n int) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + strings.Repeat("x", i%7) + string(rune(0x4e00+i%20000)) + string(rune(0x10000+i/20000)) + `":0`)
		}
		return b.String() + "}"
	}
	if sumJSON(object(maxJSONMembers)) == "" {
		t.Error("refused at the bound")
	}
	if sumJSON(object(maxJSONMembers+1)) != "" {
		t.Error("taken beyond the bound")
	}
	// Those of objects that are closed are held no more.
	if half := object(maxJSONMembers / 2); sumJSON("["+half+","+half+","+half+"]") == "" {
		t.Error("refused although no more are open at a time")
	}
}

func TestALongArrayIsNotHeld(t *testing.T) {
	for _, element := range []string{"0,", "null,", `{},`, `"",`, `[],`, `{"a":0},`} {
		text := "[" + strings.Repeat(element, 4<<20/len(element)) + "0]"
		before := allocated()
		if sumJSON(text) == "" {
			t.Fatalf("%q was refused", element)
		}
		if n := allocated() - before; n > 1<<20 {
			t.Errorf("4 MiB of %q cost %d bytes", element, n)
		}
	}
}

func TestAVeryLongNumberCostsNothing(t *testing.T) {
	for _, text := range []string{`1e999999999`, `1e-999999999`, `1e999999999999999999999999`, "1" + strings.Repeat("0", 1<<20), "0." + strings.Repeat("0", 1<<20) + "1"} {
		if n := testing.AllocsPerRun(1, func() { sumJSON(text) }); n > 20 {
			t.Errorf("%.20s… makes %v allocations", text, n)
		}
	}
	if sumJSON("1"+strings.Repeat("0", 1<<20)) != sumJSON("1e1048576") {
		t.Error("the long and the short form differ")
	}
}

func TestWhatIsIgnoredInJSON(t *testing.T) {
	for name, c := range map[string]struct {
		ignore []string
		same   []string
		others []string
	}{
		"a member": {[]string{"/ts"},
			[]string{`{"a":1}`, `{"a":1,"ts":5}`, `{"ts":null,"a":1}`, `{"ts":{"x":[1]},"a":1}`},
			[]string{`{"a":2,"ts":5}`, `{"a":1,"TS":5}`, `{"a":1,"b":{"ts":5}}`, `{}`, `[{"a":1}]`, `{"a":1,"/ts":5}`}},
		"a member of a member": {[]string{"/meta/ts"},
			[]string{`{"meta":{"id":1}}`, `{"meta":{"ts":1,"id":1}}`},
			[]string{`{"meta":{"id":2}}`, `{"id":1}`, `{"meta":{}}`, `{}`, `{"meta":[1]}`, `{"meta":{"id":1},"ts":1}`}},
		"an empty object stays": {[]string{"/meta/ts"},
			[]string{`{"meta":{}}`, `{"meta":{"ts":1}}`},
			[]string{`{}`, `{"meta":null}`, `{"meta":[]}`}},
		"in an element": {[]string{"/items/0/ts"},
			[]string{`{"items":[{"ts":1},{"ts":9}]}`, `{"items":[{"ts":2},{"ts":9}]}`, `{"items":[{},{"ts":9}]}`},
			[]string{`{"items":[{"ts":1},{"ts":8}]}`, `{"items":[{"ts":9}]}`, `{"items":{"0":{},"1":{"ts":9}}}`}},
		"in a member with a number for a name": {[]string{"/items/0/ts"},
			[]string{`{"items":{"0":{"ts":1}}}`, `{"items":{"0":{}}}`},
			[]string{`{"items":[{}]}`, `{"items":{}}`}},
		"an element keeps its place": {[]string{"/0"},
			[]string{`[1,2]`, `[null,2]`, `[[{"a":1}],2]`},
			[]string{`[2]`, `[1]`, `[1,3]`, `[1,2,3]`, `[]`}},
		"elements": {[]string{"/0", "/2"},
			[]string{`[1,2,3]`, `["x",2,{}]`},
			[]string{`[1,2]`, `[1,2,3,4]`, `[1,3,3]`}},
		"escaped parts": {[]string{"/a~1b", "/c~0d", "/~01"},
			[]string{`{"x":1}`, `{"x":1,"a/b":1,"c~d":2,"~1":3}`},
			[]string{`{"x":1,"a":{"b":1}}`, `{"x":1,"a~1b":1}`, `{"x":1,"/":1}`}},
		"an escaped name": {[]string{"/é"},
			[]string{`{}`, `{"\u00e9":1}`, `{"é":2}`},
			[]string{`{"É":1}`, `{"e\u0301":1}`}},
		"an empty name": {[]string{"/"},
			[]string{`{}`, `{"":1}`},
			[]string{`{" ":1}`, `[]`}},
		"one in the other": {[]string{"/a/b", "/a"},
			[]string{`{}`, `{"a":1}`, `{"a":{"b":1,"c":2}}`},
			[]string{`{"b":1}`}},
		"nothing of a scalar": {[]string{"/0", "/a"},
			[]string{`"a"`, ` "\u0061"`},
			[]string{`"b"`, `0`}},
		"a number is written in one way": {[]string{"/00", "/01", "/+1"},
			[]string{`[1,2]`},
			[]string{`[9,2]`, `[1,9]`}},
	} {
		want := sumJSON(c.same[0], c.ignore...)
		for _, text := range c.same {
			if got := sumJSON(text, c.ignore...); got == "" || got != want {
				t.Errorf("%s: %s and %s differ", name, text, c.same[0])
			}
		}
		for _, text := range c.others {
			if got := sumJSON(text, c.ignore...); got == "" || got == want {
				t.Errorf("%s: %s and %s are one, or not taken", name, text, c.same[0])
			}
		}
	}
}

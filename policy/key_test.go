package policy

import (
	"errors"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
)

func TestParseKeyAccepts(t *testing.T) {
	long := strings.Repeat("x", 255)
	for name, tc := range map[string]struct{ value, want string }{
		"bare":                                    {`k`, `k`},
		"quoted is the same key":                  {`"k"`, `k`},
		"bare UUID that starts with a digit":      {`8e03978e-40d5-43e8-bc93-6894a57f9324`, `8e03978e-40d5-43e8-bc93-6894a57f9324`},
		"quoted UUID":                             {`"8e03978e-40d5-43e8-bc93-6894a57f9324"`, `8e03978e-40d5-43e8-bc93-6894a57f9324`},
		"whitespace around is not the key's":      {" \tk\t ", `k`},
		"whitespace around a quoted key":          {` "k" `, `k`},
		"255 characters":                          {long, long},
		"255 characters in quotes":                {`"` + long + `"`, long},
		"255 characters that need escapes":        {`"` + strings.Repeat(`\"`, 255) + `"`, strings.Repeat(`"`, 255)},
		"escaped quote":                           {`"a\"b"`, `a"b`},
		"escaped backslash":                       {`"a\\b"`, `a\b`},
		"bare backslash is itself":                {`a\b`, `a\b`},
		"quote inside a bare key":                 {`a"b`, `a"b`},
		"comma inside quotes belongs to the key":  {`"a,b"`, `a,b`},
		"bare semicolon is no parameter":          {`k;a=1`, `k;a=1`},
		"bare key in the form of a byte sequence": {`:aGk=:`, `:aGk=:`},
		"bare key in the form of a boolean":       {`?1`, `?1`},
		"single quotes are characters":            {`'k'`, `'k'`},
		"first and last visible character":        {`!~`, `!~`},
		"three dots are no step in a path":        {`...`, `...`},
		"a dot and more":                          {`.k`, `.k`},
		"an encoded dot is three characters":      {`%2e`, `%2e`},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseKey([]string{tc.value}); err != nil || got != tc.want {
				t.Errorf("ParseKey(%q) = %q, %v; want %q", tc.value, got, err, tc.want)
			}
		})
	}
}

func TestParseKeyRefuses(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, tc := range map[string]struct {
		values []string
		why    string // a part of the reason
	}{
		"two fields":                       {[]string{"secret", "secret"}, "more than once"},
		"two fields, one empty":            {[]string{"secret", ""}, "more than once"},
		"empty":                            {[]string{""}, "empty"},
		"only whitespace":                  {[]string{" \t"}, "empty"},
		"empty string":                     {[]string{`""`}, "empty"},
		"joined list":                      {[]string{"secret,secret"}, "comma"},
		"joined list with a space":         {[]string{"secret, secret"}, "comma"},
		"joined list of strings":           {[]string{`"secret", "secret"`}, "one string"},
		"string, then bare":                {[]string{`"secret", secret`}, "one string"},
		"bare, then string":                {[]string{`secret, "secret"`}, "quote"},
		"trailing comma":                   {[]string{"secret,"}, "comma"},
		"string with a parameter":          {[]string{`"secret";a=1`}, "parameters"},
		"string with a flag":               {[]string{`"secret";a`}, "parameters"},
		"string with bytes after it":       {[]string{`"secret"x`}, "one string"},
		"open quote":                       {[]string{`"secret`}, "one string"},
		"lone quote":                       {[]string{`"`}, "one string"},
		"quote at the end only":            {[]string{`secret"`}, "quote"},
		"escape that is none":              {[]string{`"se\cret"`}, "one string"},
		"space inside (obs-fold)":          {[]string{"secret 2"}, "space"},
		"space inside quotes":              {[]string{`"secret 2"`}, "space"},
		"control character":                {[]string{"secret\x00"}, "control"},
		"line break":                       {[]string{"secret\r\nX: y"}, "control"},
		"DEL":                              {[]string{"secret\x7f"}, "control"},
		"control character inside quotes":  {[]string{"\"secret\x01\""}, "one string"},
		"non-ASCII":                        {[]string{"secrét"}, "non-ASCII"},
		"non-ASCII in quotes":              {[]string{`"secrét"`}, "one string"},
		"256 characters":                   {[]string{long}, "longer than 255"},
		"256 characters in quotes":         {[]string{`"` + long + `"`}, "longer than 255"},
		"one dot":                          {[]string{"."}, "only dots"},
		"two dots":                         {[]string{" .. "}, "only dots"},
		"one dot in quotes":                {[]string{`"."`}, "only dots"},
		"two dots in quotes":               {[]string{`".."`}, "only dots"},
		"non-breaking space is no padding": {[]string{"secret\u00a0"}, "non-ASCII"},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := ParseKey(tc.values)
			var bad *KeyError
			if key != "" || !errors.As(err, &bad) {
				t.Fatalf("ParseKey(%q) = %q, %v; want a KeyError", tc.values, key, err)
			}
			if !strings.Contains(bad.Reason, tc.why) || !strings.Contains(err.Error(), bad.Reason) {
				t.Errorf("error %q does not say %q", err, tc.why)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "xxxx") {
				t.Errorf("error %q repeats the key", err)
			}
		})
	}
}

func TestNoFieldIsMissingAndAnEmptyOneIsNot(t *testing.T) {
	if _, err := ParseKey(nil); !errors.Is(err, ErrKeyMissing) {
		t.Errorf("no field: %v, want ErrKeyMissing", err)
	}
	if _, err := ParseKey([]string{""}); errors.Is(err, ErrKeyMissing) {
		t.Error("an empty field counts as missing, and would pass where a missing key may")
	}
}

func TestFormatKeyIsBareUnlessThatIsAmbiguous(t *testing.T) {
	for key, want := range map[string]string{
		`k`: `k`, `a"b`: `a"b`, `a\b`: `a\b`, `k;a=1`: `k;a=1`,
		`a,b`: `"a,b"`, `"a`: `"\"a"`, `a"`: `"a\""`, `"`: `"\""`, `\,`: `"\\,"`,
	} {
		if got := FormatKey(key); got != want {
			t.Errorf("FormatKey(%s) = %s, want %s", key, got, want)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{`k`, `"k"`, `"a\"b"`, `a,b`, `"a,b"`, `"k";a=1`, `"`, ` k `, "k\x00", `a"`, `"\\"`, `é`, `.`, `".."`, `...`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := ParseKey([]string{value})
		if err != nil {
			if key != "" {
				t.Fatalf("ParseKey(%q) gave a key with an error", value)
			}
			return
		}
		if len(key) < 1 || len(key) > MaxKeyLength || !allVisible(key) {
			t.Fatalf("ParseKey(%q) = %q: not 1 to 255 visible characters", value, key)
		}
		if path.Clean("/operations/"+url.PathEscape(key)) == "/operations" || path.Clean("/operations/"+url.PathEscape(key)) == "/" {
			t.Fatalf("ParseKey(%q) = %q: no path can hold it", value, key)
		}
		// The library's own serialisation, so that our quoting is not its own judge.
		quoted, err := httpsfv.Marshal(httpsfv.NewItem(key))
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{quoted, FormatKey(key)} {
			if again, err := ParseKey([]string{form}); err != nil || again != key {
				t.Fatalf("%q came back from %q as %q, %v", key, form, again, err)
			}
		}
		if strings.HasPrefix(FormatKey(key), `"`) && FormatKey(key) != quoted {
			t.Fatalf("FormatKey(%q) = %s, want %s", key, FormatKey(key), quoted)
		}
	})
}

func TestUnderscoreAliasIsSeen(t *testing.T) {
	for _, tc := range []struct {
		field, name string
		want        bool
	}{
		{"Idempotency_Key", "Idempotency-Key", true},
		{"Idempotency_key", "Idempotency-Key", true},
		{"IDEMPOTENCY_KEY", "Idempotency-Key", true},
		{"X-Idempotency_key", "X-Idempotency-Key", true}, // one hyphen of two
		{"Idempotency-Key", "Idempotency-Key", false},
		{"idempotency-key", "Idempotency-Key", false},
		{"Idempotency_Keys", "Idempotency-Key", false},
		{"Idempotency.Key", "Idempotency-Key", false},
		{"X_Request_Id", "Idempotency-Key", false},
		{"Key", "Key", false},
	} {
		header := map[string][]string{"Accept": {"*/*"}, tc.field: {"k"}}
		if got := HasKeyAlias(header, tc.name); got != tc.want {
			t.Errorf("HasKeyAlias(%s for %s) = %v, want %v", tc.field, tc.name, got, tc.want)
		}
	}
}

func TestNamedInConnection(t *testing.T) {
	for _, tc := range []struct {
		connection []string
		want       bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"close"}, false},
		{[]string{"Idempotency-Key"}, true},
		{[]string{"close, idempotency-key"}, true},
		{[]string{"close,\tIDEMPOTENCY-KEY ,keep-alive"}, true},
		{[]string{"close", "Idempotency-Key"}, true},
		{[]string{",,Idempotency-Key"}, true},
		{[]string{"Idempotency-Key,"}, true},
		{[]string{"Idempotency-Key-2, X-Idempotency-Key"}, false},
	} {
		if got := NamedInConnection(tc.connection, "Idempotency-Key"); got != tc.want {
			t.Errorf("NamedInConnection(%q) = %v, want %v", tc.connection, got, tc.want)
		}
	}
}

package policy

import "testing"

func TestFoldingIsASCIIOnly(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"Idempotency-Key", "idempotency-key", true},
		{"k", "K", true},
		{"k", "\u212a", false}, // the Kelvin sign, which strings.EqualFold takes for k
		{"AZ", "az", true},
		{"a", "ab", false},
		{"@", "`", false}, // 0x20 apart, but no letters
		{"", "", true},
	} {
		if got := equalFold(tc.a, tc.b); got != tc.want {
			t.Errorf("equalFold(%q, %q) = %v, want %v", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestTokenIsRFC9110(t *testing.T) {
	const specials = "!#$%&'*+-.^_`|~"
	for b := range 256 {
		want := alphanumeric(byte(b))
		for i := range len(specials) {
			want = want || specials[i] == byte(b)
		}
		if got := isToken(string([]byte{byte(b)})); got != want {
			t.Errorf("isToken(%q) = %v, want %v", byte(b), got, want)
		}
	}
	if isToken("") {
		t.Error("the empty string is a token")
	}
}

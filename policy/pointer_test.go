package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestWhatCanBeIgnored(t *testing.T) {
	for _, c := range []struct {
		form    BodyKind
		pointer string
		wrong   string // a part of the error; "" is none
	}{
		{BodyJSON, "/timestamp", ""},
		{BodyJSON, "/meta/request_id", ""},
		{BodyJSON, "/items/0/ts", ""},
		{BodyJSON, "/", ""},
		{BodyJSON, "//", ""},
		{BodyJSON, "/a~1b~0c", ""},
		{BodyJSON, "/é b", ""},
		{BodyAuto, "/meta/request_id", ""},
		{BodyForm, "/timestamp", ""},
		{BodyForm, "/meta[ts]", ""},
		{BodyForm, "/a~1b", ""},
		{BodyMultipart, "/timestamp", ""},
		{BodyRaw, "/timestamp", "byte by byte"},
		{BodyJSON, "", "the whole body"},
		{BodyForm, "", "the whole body"},
		{BodyJSON, "timestamp", "must start with a slash"},
		{BodyJSON, "$.timestamp", "must start with a slash"},
		{BodyJSON, "#/timestamp", "must start with a slash"},
		{BodyJSON, "/a~", "neither ~0"},
		{BodyJSON, "/a~2", "neither ~0"},
		{BodyJSON, "/~~0", "neither ~0"},
		{BodyJSON, "/a~/b", "neither ~0"},
		{BodyJSON, "/items/-", "neither stands for every element"},
		{BodyJSON, "/items/*/ts", "neither stands for every element"},
		{BodyForm, "/*", "neither stands for every element"},
		{BodyForm, "/a/b", "more than one part"},
		{BodyMultipart, "/a/b", "more than one part"},
		{BodyJSON, "/\xff", "UTF-8"},
	} {
		err := CheckIgnore(c.form, c.pointer)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%v %q: %v, want %q", c.form, c.pointer, err, c.wrong)
		}
	}
}

func TestARouteSaysWhatIsWrongWithItsFingerprint(t *testing.T) {
	for want, rule := range map[string]FingerprintRule{
		`route "r": fingerprint.ignore: "/a" cannot be ignored where`: {Ignore: []string{"/a"}},
		`route "r": fingerprint.ignore: "a" is not a JSON`:            {Body: BodyJSON, Ignore: []string{"/b", "a"}},
		`route "r": fingerprint.body: 5 is no known choice`:           {Body: BodyAuto + 1},
	} {
		_, err := NewTable([]Route{{Name: "r", Upstream: upstream(t, "http://up"), Fingerprint: rule}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, err := NewTable([]Route{{Name: "r", Upstream: upstream(t, "http://up"), Limits: Limits{Parse: -1}}})
	if err == nil || !strings.Contains(err.Error(), "limits.parse: must be positive") {
		t.Error(err)
	}
	list := []string{"/a"}
	r := table(t, Route{Fingerprint: FingerprintRule{Body: BodyJSON, Ignore: list}}).Routes()[0]
	list[0] = "/b"
	if r.Fingerprint.Ignore[0] != "/a" {
		t.Error("the table shares the list with its giver")
	}
}

func TestBodyKindsHaveNames(t *testing.T) {
	if got := BodyKinds(); !slices.Equal(got, []string{"raw", "json", "form", "multipart", "auto"}) {
		t.Errorf("%v", got)
	}
	for i, name := range BodyKinds() {
		if k, ok := ParseBodyKind(name); !ok || k != BodyKind(i) || k.String() != name {
			t.Errorf("%s is %v %v", name, k, ok)
		}
	}
	if k, ok := ParseBodyKind("JSON"); ok || k != BodyRaw {
		t.Errorf("%v %v", k, ok)
	}
	if s := BodyKind(9).String(); s != "body(9)" {
		t.Error(s)
	}
}

package policy

import (
	"net/textproto"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheDocumentNamesWhatIsNotKept: each field with its reason, and no other.
func TestTheDocumentNamesWhatIsNotKept(t *testing.T) {
	b, err := os.ReadFile("../docs/fidelity.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "## What a replay leaves out")
	if !ok {
		t.Fatal("the section is gone")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(section, "|---|---|")
	var named []string
	for line := range strings.SplitSeq(table, "\n") {
		fields, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(fields, -1) {
			named = append(named, m[1])
		}
	}
	covered := func(field string) bool {
		for _, n := range named {
			if family, is := strings.CutSuffix(n, "*"); n == field || is && strings.HasPrefix(field, family) {
				return true
			}
		}
		return false
	}
	for _, n := range named {
		if Storable(strings.TrimSuffix(n, "*")) {
			t.Errorf("the document says that %s is not kept, and it is", n)
		}
	}
	for _, n := range notStoredFields {
		if n = textproto.CanonicalMIMEHeaderKey(n); !covered(n) {
			t.Errorf("%s is not kept, and the document does not say so", n)
		}
	}
	for _, n := range storedFields {
		if n = textproto.CanonicalMIMEHeaderKey(n); covered(n) {
			t.Errorf("%s is kept, and the document says that it is not", n)
		}
	}
}

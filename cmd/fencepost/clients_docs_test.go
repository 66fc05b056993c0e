package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shown is what docs/clients.md shows of a file of testdata/clients.
var shown = regexp.MustCompile(`(?ms)^( *)(?://|#) docs/clients\.md shows this\n(.*?)^ *(?://|#) up to here\n`)

// TestTheClientsDocumentShowsWhatIsTested, line by line and with its versions.
func TestTheClientsDocumentShowsWhatIsTested(t *testing.T) {
	blocks := strings.Join(append(fenced(t, "js"), fenced(t, "python")...), "\n")
	files, err := filepath.Glob("testdata/clients/*")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shown.FindAllStringSubmatch(string(text), -1) {
			found++
			lines := strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n")[1:]
			if !strings.Contains("\n"+blocks, "\n"+lines) {
				t.Errorf("docs/clients.md does not show what %s tests:\n%s", file, lines)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d pieces found", found)
	}

	document, err := os.ReadFile(filepath.Join(root, "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("testdata/clients/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var m struct{ Dependencies map[string]string }
	if err := json.Unmarshal(manifest, &m); err != nil {
		t.Fatal(err)
	}
	for name, version := range m.Dependencies {
		minor := version[:strings.LastIndexByte(version, '.')]
		row := regexp.MustCompile("`" + regexp.QuoteMeta(name) + "`[^|]* " + regexp.QuoteMeta(minor) + `\b`)
		if !row.Match(document) {
			t.Errorf("docs/clients.md has no row for %s %s", name, minor)
		}
	}
	for _, s := range sdks {
		if s.class != "Refused" && !strings.Contains(string(document), s.class) {
			t.Errorf("docs/clients.md does not name %s, the error of %s", s.class, s.name)
		}
	}
}

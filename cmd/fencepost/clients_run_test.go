package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sdkCall is one call of an SDK: an order that is placed by one of the ways of
// its file in testdata/clients.
type sdkCall struct {
	Way      string            `json:"way"`
	URL      string            `json:"url"`      // the base URL
	Upstream string            `json:"upstream"` // the base URL behind Fencepost
	Timeout  int               `json:"timeout"`  // of an attempt, in ms
	Retries  int               `json:"retries"`
	Key      string            `json:"key"`
	Order    map[string]string `json:"order"`
}

// sdkEnd is what a call ended with: the charge's id or an error.
type sdkEnd struct {
	ID    string
	Error *sdkError
}

// sdkError is an error as a caller reads it by what docs/clients.md says: the
// HTTP status and Fencepost's code, or the SDK's own code where there was no answer.
type sdkError struct {
	Class, Code, Message string
	Status               int
}

func (e sdkEnd) String() string {
	if e.Error != nil {
		return fmt.Sprintf("error %+v", *e.Error)
	}
	return "charge " + e.ID
}

// node runs an SDK's file with calls that are made at once.
func node(file string) func(*testing.T, []sdkCall) []sdkEnd {
	return func(t *testing.T, calls []sdkCall) []sdkEnd {
		t.Helper()
		in, _ := json.Marshal(map[string]any{"calls": calls})
		return sdkEnds(t, clientProgram(t, "node", filepath.Join(nodeFolder(t), file)), in, len(calls))
	}
}

// nodeFolder is a folder with the files of testdata/clients beside node_modules:
// an ECMAScript module finds packages nowhere else.
func nodeFolder(t *testing.T) string {
	t.Helper()
	modules, err := nodeModules()
	if err == nil {
		_, err = exec.LookPath("node")
	}
	if err != nil {
		unavailable(t, "the SDKs of npm", err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/clients")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// debianPython is the interpreter that Debian's packages belong to; another may be
// first in the path.
const debianPython = "/usr/bin/python3"

// python runs a file like node does.
func python(file string) func(*testing.T, []sdkCall) []sdkEnd {
	return func(t *testing.T, calls []sdkCall) []sdkEnd {
		t.Helper()
		if out, err := exec.Command(debianPython, "-c", "import requests, urllib3").CombinedOutput(); err != nil {
			unavailable(t, "python3-requests", fmt.Errorf("%w: %s", err, out))
		}
		in, _ := json.Marshal(map[string]any{"calls": calls})
		return sdkEnds(t, clientProgram(t, debianPython, filepath.Join("testdata", "clients", file)), in, len(calls))
	}
}

func sdkEnds(t *testing.T, cmd *exec.Cmd, in []byte, n int) (ends []sdkEnd) {
	t.Helper()
	out, problems, err := piped(cmd, in)
	if err == nil {
		err = json.Unmarshal([]byte(out), &ends)
	}
	if err != nil || len(ends) != n {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, problems)
	}
	return ends
}

// shop is the server behind the gateway: it answers every order with a charge in
// which each SDK finds what it needs.
func shop(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", `"1"`)
		id := "charge of " + callOf(r)
		json.NewEncoder(w).Encode(map[string]any{"id": id, "ScheduleArn": id, "object": "chat.completion", "choices": []any{}})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// documented starts Fencepost with a configuration of docs/clients.md: the one
// whose route has this name, before this gateway.
func documented(t *testing.T, g *gateway, route string) *process {
	t.Helper()
	for _, block := range fenced(t, "yaml") {
		if !strings.Contains(block, "name: "+route+",") {
			continue
		}
		text := regexp.MustCompile(`upstream: [^\s,}]+`).ReplaceAllString(block, "upstream: '"+g.URL+"'")
		dir := t.TempDir()
		text += fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nledger: {url: 'sqlite://%s/l.db'}\n", dir)
		name := filepath.Join(dir, "fencepost.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return frontWith(t, nil, name)
	}
	t.Fatalf("docs/clients.md shows no route named %s", route)
	return nil
}

// fenced are the code blocks of docs/clients.md in a language.
func fenced(t *testing.T, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range strings.Split(string(text), "```"+language+"\n")[1:] {
		b, _, _ = strings.Cut(b, "```")
		blocks = append(blocks, b)
	}
	return blocks
}

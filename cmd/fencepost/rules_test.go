package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Dir        string
}

// packages lists the project's packages with their dependencies.
func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,Dir", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var ps []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

// forbidden says which packages may not depend on what, directly or through
// others, and why. A dependency ending in / is a prefix.
var forbidden = []struct{ from, to, why string }{
	{"fencepost/policy", "fencepost/keystore", "policy is pure: it decides without knowing a ledger"},
	{"fencepost/policy", "fencepost/proxy", "policy is pure: it decides without knowing HTTP servers"},
	{"fencepost/policy", "net/http", "policy is pure: it takes plain values, so that its tests are table rows"},
	{"fencepost/keystore", "fencepost/policy", "the ledger keeps what it is told; the fingerprint crosses as text"},
	{"fencepost/keystore", "fencepost/proxy", "the ledger knows nothing of HTTP"},
	{"fencepost/keystore", "net/http", "the ledger knows nothing of HTTP"},
	{"fencepost/proxy", "fencepost/keystore/sqlitestore", "the proxy works with any store"},
	{"fencepost/proxy", "fencepost/keystore/redisstore", "the proxy works with any store"},
	{"fencepost/proxy", "github.com/goccy/", "only cmd reads YAML"},
	{"fencepost/proxy/ca", "net/http", "the authority signs, and serves nothing"},
	{"fencepost/cmd/fencepost/internal/clientenv", "net/http", "a client's environment is files and variables"},
	{"fencepost/keystore/sqlitestore", "github.com/redis/", "only redisstore knows Redis"},
	{"fencepost/keystore/redisstore", "modernc.org/", "only sqlitestore knows SQLite"},
	{"fencepost/keystore/redisstore", "database/sql", "only sqlitestore knows SQLite"},
	{"fencepost/cmd/fencepost", "testing", "no test helper may be in the product"},
	{"fencepost/cmd/fencepost", "fencepost/keystore/storetest", "no fake may be in the product"},
}

// alone are the packages whose rules do not extend to what lies below them.
var alone = map[string]bool{"fencepost/keystore": true}

func TestImportArrows(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range packages(t) {
		for _, r := range forbidden {
			if p.ImportPath != r.from && (alone[r.from] || !strings.HasPrefix(p.ImportPath, r.from+"/")) {
				continue
			}
			seen[r.from] = true
			for _, d := range p.Deps {
				if d == r.to || (strings.HasSuffix(r.to, "/") && strings.HasPrefix(d, r.to)) {
					t.Errorf("%s depends on %s: %s", p.ImportPath, d, r.why)
				}
			}
		}
	}
	for _, r := range forbidden {
		if !seen[r.from] {
			t.Errorf("the rule about %s meets no package", r.from)
		}
	}
}

func TestOnlyCmdKnowsYAMLAndOnlyItsStoreADriver(t *testing.T) {
	owner := map[string]string{
		"github.com/goccy/go-yaml":            "fencepost/cmd/fencepost",
		"github.com/redis/go-redis/v9":        "fencepost/keystore/redisstore",
		"modernc.org/sqlite":                  "fencepost/keystore/sqlitestore",
		"github.com/go-chi/chi/v5":            "fencepost/proxy",
		"github.com/dunglas/httpsfv":          "fencepost/policy",
		"github.com/prometheus/client_golang": "fencepost/proxy",
		"software.sslmate.com/src/go-pkcs12":  "fencepost/cmd/fencepost/internal/clientenv",
	}
	used := make(map[string]bool)
	for _, p := range packages(t) {
		for _, i := range p.Imports {
			for module, home := range owner {
				if i != module && !strings.HasPrefix(i, module+"/") {
					continue
				}
				used[module] = true
				if p.ImportPath != home && !strings.HasPrefix(p.ImportPath, home+"/") {
					t.Errorf("%s imports %s, which belongs to %s", p.ImportPath, i, home)
				}
			}
		}
	}
	for module := range owner {
		if !used[module] {
			t.Errorf("nobody imports %s", module)
		}
	}
}

// TestEveryPackageHasOneDesignPage and every exported name its sentence.
func TestEveryPackageHasOneDesignPage(t *testing.T) {
	for _, p := range packages(t) {
		fset := token.NewFileSet()
		entries, err := os.ReadDir(p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		comments := 0
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, e.Name()), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments++
			}
			for _, name := range undocumented(f) {
				t.Errorf("%s: %s has no doc comment", fset.Position(name.Pos()), name.Name)
			}
		}
		if comments != 1 {
			t.Errorf("%s has %d package comments", p.ImportPath, comments)
		}
	}
}

// undocumented returns the exported top-level names of f without a comment. A
// comment on a group counts for its members.
func undocumented(f *ast.File) []*ast.Ident {
	var out []*ast.Ident
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			// Error and Unwrap say the same everywhere.
			plain := d.Recv != nil && (d.Name.Name == "Error" || d.Name.Name == "Unwrap")
			if d.Name.IsExported() && d.Doc == nil && !plain && (d.Recv == nil || exportedReceiver(d)) {
				out = append(out, d.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
						out = append(out, s.Name)
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
							out = append(out, n)
						}
					}
				}
			}
		}
	}
	return out
}

func exportedReceiver(d *ast.FuncDecl) bool {
	t := d.Recv.List[0].Type
	if s, ok := t.(*ast.StarExpr); ok {
		t = s.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

func TestTheTopLevelHoldsWhatTheDesignSays(t *testing.T) {
	want := []string{"Dockerfile", "LICENSE", "README.md", "cmd", "config.example.yaml", "docs", "go.mod", "go.sum", "keystore", "policy", "proxy"}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			got = append(got, e.Name())
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("top level: %v, want %v", got, want)
	}
}

// TestNoFileIsLong: one idea a file.
func TestNoFileIsLong(t *testing.T) {
	const most = 500
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if n := strings.Count(string(b), "\n"); n > most {
			t.Errorf("%s has %d lines, more than %d", path, n, most)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

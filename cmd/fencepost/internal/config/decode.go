package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	Line, Column int
	// Path is the key it is about, such as routes[0].upstream.
	Path    string
	Message string
}

// Problems are all of them, in the order of the file.
type Problems struct {
	File string
	List []Problem
}

// Error lists every problem on its own line.
func (p *Problems) Error() string {
	var b strings.Builder
	for i, x := range p.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.File)
		if x.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", x.Line, x.Column)
		}
		b.WriteString(": ")
		if x.Path != "" {
			b.WriteString(x.Path + ": ")
		}
		b.WriteString(x.Message)
	}
	return b.String()
}

// decoder walks a YAML tree beside a Go value and notes every disagreement.
type decoder struct {
	problems []Problem
	places   map[string]*token.Position
	failed   map[string]bool   // paths whose value could not be read
	presets  map[string]string // paths that a profile has set, and its name
	getenv   func(string) (string, bool)
}

// fail notes that the value of path cannot be read.
func (d *decoder) fail(path string, at *token.Position, format string, args ...any) {
	d.failed[path] = true
	d.note(path, at, fmt.Sprintf(format, args...))
}

func (d *decoder) note(path string, at *token.Position, message string) {
	p := Problem{Path: path, Message: message}
	if at != nil {
		p.Line, p.Column = at.Line, at.Column
	}
	d.problems = append(d.problems, p)
}

// at notes a problem that was found after decoding, at the place of its path
// or, where that was left out, of the nearest key above it.
func (d *decoder) at(path, message string) {
	message += d.origin(path)
	place := path
	for d.places[place] == nil && place != "" {
		if i := strings.LastIndexAny(place, ".["); i >= 0 {
			place = place[:i]
		} else {
			place = ""
		}
	}
	d.note(path, d.places[place], message)
}

// origin says where a value comes from that nobody wrote, for those who look for it
// in the file.
func (d *decoder) origin(path string) string {
	if name := d.presets[path]; name != "" && d.places[path] == nil {
		return " (the profile " + name + " says so)"
	}
	return ""
}

// arrange sorts problems by place and drops what is said twice.
func arrange(list []Problem) []Problem {
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(list)
}

// parse returns the document's root, or nil when it is empty or broken.
func (d *decoder) parse(src []byte) ast.Node {
	f, err := parser.ParseBytes(src, 0)
	if err != nil {
		// The library's message starts with its own [line:column].
		msg, _, _ := strings.Cut(err.Error(), "\n")
		var line, col int
		if n, _ := fmt.Sscanf(msg, "[%d:%d]", &line, &col); n == 2 {
			_, msg, _ = strings.Cut(msg, "] ")
		}
		d.problems = append(d.problems, Problem{Line: line, Column: col, Message: "not valid YAML: " + withoutSecrets(msg)})
		return nil
	}
	var root ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			d.fail("", doc.Body.GetToken().Position, "a second document; a configuration is one")
			return nil
		}
		root = doc.Body
	}
	if root == nil {
		d.fail("", nil, "the file is empty; see config.example.yaml")
	}
	return root
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// value decodes n into v, which is settable.
func (d *decoder) value(n ast.Node, v reflect.Value, path string) {
	pos := n.GetToken().Position
	switch n.Type() {
	case ast.AnchorType, ast.AliasType, ast.MergeKeyType, ast.TagType:
		d.fail(path, pos, "anchors, aliases, merge keys and tags are not supported")
		return
	case ast.NullType:
		d.fail(path, pos, "has no value; leave the key out for its default")
		return
	}
	d.places[path] = pos
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		if init, ok := v.Interface().(interface{ defaults() }); ok {
			init.defaults()
		}
		d.value(n, v.Elem(), path)
		return
	}
	if v.Addr().Type().Implements(textUnmarshaler) {
		if s, ok := d.scalar(n, path); ok {
			if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
				d.fail(path, pos, "%v", err)
			}
		}
		return
	}
	switch v.Type() {
	case reflect.TypeFor[Pairs](), reflect.TypeFor[SecretPairs]():
		d.pairs(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.sequence(n, v, path)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.fail(path, pos, "must be true or false")
			return
		}
		v.SetBool(b.Value)
	case reflect.Int, reflect.Int64:
		i, ok := n.(*ast.IntegerNode)
		if !ok {
			d.fail(path, pos, "must be a whole number")
			return
		}
		switch x := i.Value.(type) {
		case uint64:
			if x > 1<<31 {
				d.fail(path, pos, "is too large")
				return
			}
			v.SetInt(int64(x))
		default:
			d.fail(path, pos, "must not be negative")
		}
	case reflect.String:
		s, ok := d.scalar(n, path)
		if !ok {
			return
		}
		if v.Type() == reflect.TypeFor[Secret]() {
			x, err := Expand(s, d.getenv)
			if err != nil {
				d.fail(path, pos, "%v", err)
			}
			s = x
		} else if strings.Contains(s, "${") {
			d.fail(path, pos, "${…} is for secrets only; write the value here")
		}
		v.SetString(s)
	default:
		panic("config: no decoding for " + v.Type().String())
	}
}

// scalar returns the text of a string or a number.
func (d *decoder) scalar(n ast.Node, path string) (string, bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.LiteralNode:
		return x.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, true
	case *ast.BoolNode:
		// "off" and friends are booleans to YAML 1.1 and words to people.
		return n.GetToken().Value, true
	}
	d.fail(path, n.GetToken().Position, "must be a single value")
	return "", false
}

func (d *decoder) sequence(n ast.Node, v reflect.Value, path string) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fail(path, n.GetToken().Position, "must be a list")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values)))
	for i, e := range s.Values {
		elem := v.Index(i)
		if init, ok := elem.Addr().Interface().(interface{ defaults() }); ok {
			init.defaults()
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		if p, ok := elem.Addr().Interface().(interface {
			preset(*decoder, ast.Node, string)
		}); ok {
			p.preset(d, e, at)
		}
		d.value(e, elem, at)
	}
}

// entries returns the entries of a mapping.
func (d *decoder) entries(n ast.Node, path string) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	d.fail(path, n.GetToken().Position, "must be a mapping of keys to values")
	return nil, false
}

// pairs decodes a mapping whose keys are free.
func (d *decoder) pairs(n ast.Node, v reflect.Value, path string) {
	entries, _ := d.entries(n, path)
	seen := make(map[string]bool)
	for _, kv := range entries {
		pos, name := kv.Key.GetToken().Position, kv.Key.GetToken().Value
		if seen[name] {
			d.note(path, pos, fmt.Sprintf("the key %s stands twice", shown(name)))
		}
		seen[name] = true
		elem := reflect.New(v.Type().Elem()).Elem()
		elem.Field(0).SetString(name)
		d.value(kv.Value, elem.Field(1), path+"."+name)
		v.Set(reflect.Append(v, elem))
	}
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, path string) {
	pairs, ok := d.entries(n, path)
	if !ok {
		return
	}
	fields := fieldsOf(v.Type())
	seen := make(map[string]bool)
	var meant []string
	for _, kv := range pairs {
		pos := kv.Key.GetToken().Position
		name := kv.Key.GetToken().Value
		sub := strings.TrimPrefix(path+"."+name, ".")
		i, known := fields[name]
		switch {
		case !known:
			near := nearest(name, fields)
			meant = append(meant, near)
			d.note(path, pos, fmt.Sprintf("unknown key %s%s", shown(name), suggest(near, fields)))
		case seen[name]:
			d.note(path, pos, fmt.Sprintf("the key %s stands twice", shown(name)))
		default:
			seen[name] = true
			d.value(kv.Value, v.Field(i), sub)
			d.places[sub] = pos
		}
	}
	// A key that was misspelt is not left out: do not say that it is missing.
	for _, name := range meant {
		if name != "" && !seen[name] {
			d.failed[strings.TrimPrefix(path+"."+name, ".")] = true
		}
	}
}

// fieldsOf maps the YAML names of a struct to its field indexes.
func fieldsOf(t reflect.Type) map[string]int {
	m := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			m[name] = i
		}
	}
	return m
}

// suggest names the known key that is meant, or all of them.
func suggest(meant string, fields map[string]int) string {
	if meant != "" {
		return fmt.Sprintf("; did you mean %q?", meant)
	}
	return "; known are " + strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}

// nearest gives the known key that name is a misspelling of, or "".
func nearest(name string, fields map[string]int) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
	}
	best, least := "", 3
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		a, b := plain(name), plain(f)
		// Two slips in a word of three letters make another word.
		if n := slips(a, b); n < least && 3*n <= len(b) {
			best, least = f, n
		}
	}
	return best
}

// slips is the number of letters to add, drop, change or swap between a and b.
func slips(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			if i == 0 || j == 0 {
				rows[i][j] = i + j
				continue
			}
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			n := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				n = min(n, rows[i-2][j-2]+1)
			}
			rows[i][j] = n
		}
	}
	return rows[len(a)][len(b)]
}

package config

import (
	"embed"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A profile is what a provider's public documents say of its API, as the keys of a
// route. A route that names one starts from it instead of from the defaults; what
// the route says itself stands. docs/providers.md shows each, with its documents.
//
//go:embed profiles/*.yaml
var profileFiles embed.FS

// ProfileNames lists the profiles in order.
func ProfileNames() []string {
	entries, err := profileFiles.ReadDir("profiles")
	if err != nil {
		panic(err) // embedded
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".yaml")
	}
	return names
}

// ProfileText gives a profile as it could stand in a route.
func ProfileText(name string) (text string, ok bool) {
	for _, known := range ProfileNames() {
		if name == known {
			b, err := profileFiles.ReadFile("profiles/" + name + ".yaml")
			return string(b), err == nil
		}
	}
	return "", false
}

// preset decodes the profile that the route names, before the route's own keys. A
// name that is none is validateRoute's to report.
func (r *Route) preset(d *decoder, n ast.Node, path string) {
	name := textOf(n, "profile")
	text, ok := ProfileText(name)
	if !ok {
		return
	}
	p := &decoder{places: make(map[string]*token.Position), failed: make(map[string]bool), getenv: d.getenv}
	if root := p.parse([]byte(text)); root != nil {
		p.value(root, reflect.ValueOf(r).Elem(), path)
	}
	if len(p.problems) > 0 {
		panic(fmt.Sprintf("config: the profile %s: %v", name, p.problems)) // a test loads each
	}
	for place := range p.places {
		d.presets[place] = name
	}
}

// textOf gives the text under a key of a mapping, or "". What is wrong with it is
// reported when it is decoded.
func textOf(n ast.Node, key string) string {
	var entries []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		entries = m.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{m}
	}
	for _, kv := range entries {
		if s, ok := kv.Value.(*ast.StringNode); ok && kv.Key.GetToken().Value == key {
			return s.Value
		}
	}
	return ""
}

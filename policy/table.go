package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Table is an ordered list of routes, checked as a whole. It is immutable.
type Table struct {
	rules []rule
}

// rule is a route made ready to compare.
type rule struct {
	*Route
	host  hostPattern
	plain bool // the path has no encoding
}

// NewTable checks the routes, fills in their defaults and puts their spellings into
// canonical form. The routes are copied. It reports all problems at once, joined,
// each with the name of its route. An empty table is valid and matches nothing.
//
// A route that no request can reach, because one earlier route takes all of its
// requests, is a problem: whoever wrote it believes that it does something.
func NewTable(routes []Route) (*Table, error) {
	t := &Table{rules: make([]rule, 0, len(routes))}
	var problems []error
	for i, given := range routes {
		label := fmt.Sprintf("route %q", given.Name)
		if given.Name == "" {
			label = fmt.Sprintf("route %d", i+1)
		}
		r, found := prepare(given)
		next := rule{r, newHostPattern(r.Host), !strings.Contains(r.Path, "%")}
		for _, earlier := range t.rules {
			if r.Name != "" && earlier.Name == r.Name {
				found = append(found, errors.New("name: is already taken"))
			}
			if earlier.covers(next) {
				found = append(found, fmt.Errorf("match: can never be reached, route %q before it takes every such request", earlier.Name))
				break
			}
		}
		for _, problem := range found {
			problems = append(problems, fmt.Errorf("%s: %w", label, problem))
		}
		t.rules = append(t.rules, next)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return t, nil
}

// covers reports whether no request can reach next because of r before it. A
// request for a next whose path has two readings has two readings itself, so r also
// stands in the way when only the loose one falls to it: see Match.
func (r rule) covers(next rule) bool {
	return r.host.covers(next.host) && (hasPathPrefix(next.Path, r.Path, false) ||
		ambiguous(next.Path) && hasPathPrefix(next.Path, r.Path, true))
}

// Match gives the first route for a host (as in the Host field: port and trailing
// dot do not matter) and an escaped path that CheckTarget has accepted. It does not
// allocate.
//
// Paths are compared as RFC 3986 has it: an encoded unreserved character equals the
// character (%76 is v), any other encoding does not (%2F is no slash). Where a less
// exact server could take the path for another one (an encoded slash or colon, a
// ";" parameter, two slashes in a row), the path is matched once more as such a
// server would read it. When the two readings reach different routes the answer is
// no route: nobody can say which rule the upstream's reading falls under, so no
// spelling leads round a rule.
func (t *Table) Match(host, path string) (*Route, bool) {
	host = bareHost(host)
	addr, _ := parseAddress(host)
	found := t.find(host, addr, path, false)
	if found == nil || ambiguous(path) && t.find(host, addr, path, true) != found {
		return nil, false
	}
	return found, true
}

// Disputed reports whether Match gives no route only because the path has two
// readings that fall under different rules. Where no rule is found at all, a path that
// falls under one but for the case of its letters is one of two readings too: many
// servers (Express, IIS) take /V1/ for /v1/.
func (t *Table) Disputed(host, path string) bool {
	host = bareHost(host)
	addr, _ := parseAddress(host)
	strict := t.find(host, addr, path, false)
	if ambiguous(path) && t.find(host, addr, path, true) != strict {
		return true
	}
	if strict != nil {
		return false
	}
	path = strings.ToLower(path)
	return slices.ContainsFunc(t.rules, func(r rule) bool {
		return r.host.match(host, addr) && hasPathPrefix(path, strings.ToLower(r.Path), true)
	})
}

func (t *Table) find(host string, addr netip.Addr, path string, loose bool) *Route {
	plain := !loose && !strings.Contains(path, "%")
	for i := range t.rules {
		r := &t.rules[i]
		hasPrefix := hasPathPrefix
		if plain && r.plain {
			hasPrefix = hasPlainPrefix // the usual case
		}
		if r.host.match(host, addr) && hasPrefix(path, r.Path, loose) {
			return r.Route
		}
	}
	return nil
}

// Routes gives the routes in order, with defaults filled in. They are the table's
// own and must not be changed.
func (t *Table) Routes() []*Route {
	routes := make([]*Route, 0, len(t.rules))
	for _, r := range t.rules {
		routes = append(routes, r.Route)
	}
	return routes
}

package policy

import (
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// refField is a field as net/url reads it.
type refField struct {
	name, value string
	assigned    bool
}

var refFormText = regexp.MustCompile(`^[!-~]*$`)

// refForm reads a form with net/url. ok is false for what formSum must refuse.
func refForm(text string) (fields []refField, ok bool) {
	if text == "" {
		return nil, true
	}
	if !refFormText.MatchString(text) || strings.Contains(text, ";") {
		return nil, false
	}
	for _, part := range strings.Split(text, "&") {
		name, value, assigned := strings.Cut(part, "=")
		n, err1 := url.QueryUnescape(name)
		v, err2 := url.QueryUnescape(value)
		if part == "" || err1 != nil || err2 != nil {
			return nil, false
		}
		fields = append(fields, refField{n, v, assigned})
	}
	return fields, len(fields) <= 1000
}

var (
	refSimple = regexp.MustCompile(`^([A-Za-z0-9_-]+)((?:\[[A-Za-z0-9_-]*\])*)$`)
	refInner  = regexp.MustCompile(`^(\[[a-z_][a-z0-9_-]*\])*$`)
)

// refBound reports whether the order of two fields counts, by a rule of its own: a
// list of pairs instead of groups.
func refBound(all []refField, a, b refField) bool {
	for _, f := range all {
		if !refSimple.MatchString(f.name) {
			return true
		}
	}
	root := func(f refField) string { return refSimple.FindStringSubmatch(strings.ToLower(f.name))[1] }
	if root(a) != root(b) {
		return false
	}
	for i, f := range all {
		if root(f) != root(a) {
			continue
		}
		if !refInner.MatchString(refSimple.FindStringSubmatch(strings.ToLower(f.name))[2]) {
			return true
		}
		for j, g := range all {
			if x, y := strings.ToLower(f.name), strings.ToLower(g.name); i != j && root(g) == root(a) && (x == y || strings.HasPrefix(x, y+"[")) {
				return true
			}
		}
	}
	return false
}

// refSameForm reports whether b is a with fields exchanged whose order is free.
func refSameForm(a, b []refField) bool {
	if len(a) != len(b) {
		return false
	}
	rest := slices.Clone(b)
	for _, f := range a {
		// The first that is left, and that everything before it may follow.
		at := slices.Index(rest, f)
		if at < 0 || slices.ContainsFunc(rest[:at], func(g refField) bool { return refBound(b, g, f) }) {
			return false
		}
		rest = slices.Delete(rest, at, at+1)
	}
	return true
}

// FuzzFormByReference: formSum takes exactly what it should, and says the same of two
// forms exactly when they differ in spelling and free order only.
func FuzzFormByReference(f *testing.F) {
	for _, text := range []string{
		"", "a=1&b=2", "b=2&a=1", "a=1&a=2&b", "%61=+x&b=%zz", "a[]=1&a[]=2&c=3", "m[a]=1&m[b]=2", "m[b]=2&m[a]=1", "m=1&m[a]=2", "a.b=1&c=2", "a=1&A=2", "m[a][b]=1&m[a]=2&x", "a=1;b", "&", "=", "%5B=1&a", "m[a]=1&M[A]=2", "a[b=1", "x[0]=1&x[1]=2", "a=%26",
	} {
		f.Add(text, "a=1", uint64(1))
		f.Add(text, "b=2&a=1", uint64(7))
	}
	f.Fuzz(func(t *testing.T, a, b string, seed uint64) {
		if len(a) > 300 || len(b) > 300 {
			return // the reference is slow
		}
		fa, oka := refForm(a)
		fb, okb := refForm(b)
		for text, ok := range map[string]bool{a: oka, b: okb} {
			if sum := sumForm(text); (sum != "") != ok {
				t.Fatalf("taken for a form: %v; by the reference: %v\n%q", sum != "", ok, text)
			}
		}
		if !oka {
			return
		}
		if got := sumForm(a) == sumForm(b); okb && got != refSameForm(fa, fb) {
			t.Fatalf("one digest: %v; one meaning: %v\n%q\n%q", got, !got, a, b)
		}
		// The same fields in another order and spelling.
		r := rand.New(rand.NewPCG(seed, 0))
		other := make([]string, len(fa))
		shuffled := make([]refField, len(fa))
		for i, j := range r.Perm(len(fa)) {
			shuffled[i] = fa[j]
			other[i] = url.QueryEscape(fa[j].name)
			if fa[j].assigned {
				other[i] += "=" + url.QueryEscape(fa[j].value)
			}
		}
		text := strings.Join(other, "&")
		if slices.Contains(other, "") {
			return // cannot be written: an empty field
		}
		if got, want := sumForm(a) == sumForm(text), refSameForm(fa, shuffled); got != want {
			t.Fatalf("one digest: %v; one meaning: %v\n%q\n%q", got, want, a, text)
		}
	})
}

package policy

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// fieldList is the fields of a form, in their order.
type fieldList []formField

type formField struct {
	name string
	sum  [sha256.Size]byte // over the name and what it has
}

// write writes the list: the number of groups, and for each group, sorted by its
// key, the key, the number of its fields and their digests in their order.
//
// Fields of one group keep their order; groups have none. What is in one group is
// what a common server may put into one value, or overwrite one with the other:
//
//   - Fields of one name, and of names that differ in the case of letters only, which
//     ASP.NET takes for one.
//   - Fields whose names have the same root, the part before the first bracket. PHP,
//     Rails and their like make one value of a[]=1, a[0]=2 and a=3, in their order.
//     Only where the brackets hold nothing but different names, as in m[a]=1 and
//     m[b]=2, are they members of an object, and free.
//   - All fields, where one has a name that is not simple: dots, spaces and the like are
//     rewritten by some servers, so that different names meet.
func (l fieldList) write(c *canon) {
	type group struct {
		key    string
		fields fieldList
	}
	var groups []group
	at := make(map[string]int)
	keys := l.keys()
	for i, f := range l {
		j, known := at[keys[i]]
		if !known {
			j = len(groups)
			at[keys[i]] = j
			groups = append(groups, group{key: keys[i]})
		}
		groups[j].fields = append(groups[j].fields, f)
	}
	slices.SortFunc(groups, func(a, b group) int { return strings.Compare(a.key, b.key) })
	c.number(uint64(len(groups)))
	for _, g := range groups {
		c.text(g.key)
		c.number(uint64(len(g.fields)))
		for i := range g.fields {
			c.digest(&g.fields[i].sum)
		}
	}
}

// keys gives the key of each field's group: its name in lower case where it is free
// within its root, else the root, else nothing.
func (l fieldList) keys() []string {
	keys := make([]string, len(l))
	roots := make([]string, len(l))
	names := make(map[string][]string) // by root
	for i, f := range l {
		root, simple := fieldRoot(f.name)
		if !simple {
			return make([]string, len(l))
		}
		roots[i], keys[i] = root, strings.ToLower(f.name)
		names[root] = append(names[root], keys[i])
	}
	free := make(map[string]bool, len(names))
	for root, of := range names {
		free[root] = members(of)
	}
	for i, root := range roots {
		if !free[root] {
			keys[i] = root
		}
	}
	return keys
}

// members reports whether simple names of one root are those of an object's members,
// and of members' members: all different, with a name in each bracket that cannot be
// an array's index, and none a value and an object at the same time. It sorts names.
func members(names []string) bool {
	slices.Sort(names)
	for i, name := range names {
		// What continues a name stands right behind it.
		if i > 0 && (name == names[i-1] || strings.HasPrefix(name, names[i-1]+"[")) {
			return false
		}
		for j := range len(name) {
			// A bracket opens with a letter or underscore in it.
			if name[j] == '[' && name[j+1] != '_' && (name[j+1] < 'a' || name[j+1] > 'z') {
				return false
			}
		}
	}
	return true
}

// fieldRoot gives the root of a simple name in lower case. Simple is a root of
// letters, digits, underscores and hyphens, and then nothing, or brackets that hold
// the same or nothing.
func fieldRoot(name string) (root string, simple bool) {
	root, rest, bracket := strings.Cut(name, "[")
	if root == "" || !plainField(root) {
		return "", false
	}
	for bracket {
		inner, behind, closed := strings.Cut(rest, "]")
		if !closed || !plainField(inner) {
			return "", false
		}
		if rest, bracket = strings.CutPrefix(behind, "["); !bracket && behind != "" {
			return "", false
		}
	}
	return strings.ToLower(root), true
}

func plainField(s string) bool {
	for i := range len(s) {
		if !alphanumeric(s[i]) && s[i] != '_' && s[i] != '-' {
			return false
		}
	}
	return true
}

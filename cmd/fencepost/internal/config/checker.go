package config

import (
	"fmt"
	"slices"
	"strings"
)

// checker takes what validation finds, and leaves out what only follows from a
// value that could not be read.
type checker struct {
	report func(path, message string)
	// failed are the paths whose value could not be read: what stands there is a
	// default that nobody wrote.
	failed map[string]bool
	// origin says where the value of a path comes from, or "". Nil says nothing.
	origin func(path string) string
	found  int
}

// fail reports a problem with the value of path.
func (k *checker) fail(path, format string, args ...any) {
	if k.ok(path) {
		k.found++
		k.report(path, fmt.Sprintf(format, args...))
	}
}

// choice reports a value that is none of those it may be.
func (k *checker) choice(path, v string, of ...string) {
	if !slices.Contains(of, v) {
		k.fail(path, "%s is not one of %s", shown(v), strings.Join(of, ", "))
	}
}

// ok reports whether every path was read, or left out: neither it nor anything it
// is in has failed.
func (k *checker) ok(paths ...string) bool {
	if len(k.failed) == 0 {
		return true
	}
	for _, path := range paths {
		if k.failed[path] || k.failed[""] {
			return false
		}
		for i := range len(path) {
			if (path[i] == '.' || path[i] == '[') && k.failed[path[:i]] {
				return false
			}
		}
	}
	return true
}

// whole is ok for everything in path as well.
func (k *checker) whole(path string) bool {
	for p := range k.failed {
		if strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[") {
			return false
		}
	}
	return k.ok(path)
}

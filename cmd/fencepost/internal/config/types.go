package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration written like 30s, 10m or 24h.
type Duration time.Duration

// UnmarshalText reads Go's duration syntax. Negative durations are refused.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%s is not a duration; write it like 30s, 10m or 24h", shown(string(b)))
	}
	if v < 0 {
		return fmt.Errorf("%q is negative", b)
	}
	*d = Duration(v)
	return nil
}

// Bytes is a size written like 64KiB, 10MiB or 1048576.
type Bytes int64

var units = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}}

// UnmarshalText reads a whole number with an optional unit.
func (n *Bytes) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || v < 0 || v > (1<<62)/u.factor {
			break
		}
		*n = Bytes(v * u.factor)
		return nil
	}
	return fmt.Errorf("%s is not a size; write it like 64KiB, 10MiB or 1048576", shown(s))
}

// Pairs is a mapping of free names to values, in the file's order.
type Pairs []Pair

// Pair is one entry of Pairs.
type Pair struct{ Name, Value string }

// SecretPairs is Pairs whose values may come from the environment.
type SecretPairs []SecretPair

// SecretPair is one entry of SecretPairs.
type SecretPair struct {
	Name  string
	Value Secret
}

// Secret is a string that may take its value, or parts of it, from the
// environment. It is never printed.
type Secret string

// String hides the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[secret]"
}

// GoString hides the value.
func (s Secret) GoString() string { return s.String() }

// Expand replaces each ${NAME} by the environment variable NAME, which must be
// set and not empty.
func Expand(s string, getenv func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok || name == "" {
			return "", fmt.Errorf("a ${ is not closed; write ${NAME}")
		}
		if !isVariable(name) {
			// Not repeated: it may be a part of a secret that has a ${ in it.
			return "", fmt.Errorf("what stands in ${} is not the name of an environment variable: letters, digits and underscores")
		}
		v, set := getenv(name)
		if !set || v == "" {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		out.WriteString(v)
		s = after
	}
}

// isVariable reports whether s can name an environment variable.
func isVariable(s string) bool {
	for i := range len(s) {
		b := s[i]
		if b != '_' && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (i == 0 || b < '0' || b > '9') {
			return false
		}
	}
	return s != ""
}

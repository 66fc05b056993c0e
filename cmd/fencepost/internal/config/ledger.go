package config

import (
	"errors"
	"slices"
	"strings"
)

// Ledger URL schemes.
var ledgerSchemes = []string{"sqlite", "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}

// checkLedgerURL never repeats the URL: it may hold a password.
func checkLedgerURL(s string) error {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !slices.Contains(ledgerSchemes, scheme) {
		return errors.New("is not a ledger; use sqlite://FILE or one of redis://, rediss://, redis+sentinel://, redis+cluster://")
	}
	if scheme == "sqlite" {
		return checkSQLite(rest)
	}
	return nil
}

// checkSQLite refuses what SQLite's own URLs give a meaning. Here it would be a
// part of the file's name: another file, and so an empty ledger, in which every
// key is new.
func checkSQLite(file string) error {
	authority, _, _ := strings.Cut(file, "/")
	user, _, at := strings.Cut(authority, "@")
	switch {
	case file == "":
		return errors.New("names no file; write sqlite://FILE")
	case strings.Contains(file, ":memory:"):
		return errors.New("a ledger in memory is not supported: a restart would forget every key; write sqlite://FILE")
	case strings.ContainsAny(file, "?#"):
		return errors.New("a file name with ? or # is not supported, and sqlite:// takes no parameters; set them under ledger (ledger.timeout and others)")
	case strings.HasPrefix(file, "file:"):
		return errors.New("has file: before the name of the file; write sqlite://FILE")
	case at && strings.Contains(user, ":"):
		return errors.New("sqlite:// takes the name of a file, and no user, password or host")
	}
	return nil
}

// HoldsPassword reports whether a ledger URL has a password in it that is not
// wholly taken from the environment (${NAME}). It goes by the text before the last
// @ and does not parse the URL: one that cannot be parsed, for a slash or a percent
// sign in the password, holds it just as well.
func HoldsPassword(s string) bool {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		rest = s
	}
	i := strings.LastIndex(rest, "@")
	if i < 0 || scheme == "sqlite" && strings.HasPrefix(rest, "/") {
		return false // an absolute file name may have both : and @
	}
	_, password, _ := strings.Cut(withoutVariables(rest[:i]), ":")
	return password != ""
}

// withoutVariables cuts out every ${NAME}.
func withoutVariables(s string) string {
	var out strings.Builder
	for {
		before, after, ok := strings.Cut(s, "${")
		name, rest, closed := strings.Cut(after, "}")
		if !ok || !closed || !isVariable(name) {
			return out.String() + s
		}
		out.WriteString(before)
		s = rest
	}
}

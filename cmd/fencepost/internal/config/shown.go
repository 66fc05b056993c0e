package config

import (
	"net/url"
	"strconv"
	"strings"
)

// hidden stands in errors for a value that may hold a password.
const hidden = "the value (not shown: it may hold a password)"

// shown quotes a value for an error, unless it may be a URL with a password in
// it: errors end up in logs and in the output of CI.
func shown(s string) string {
	if strings.Contains(s, "@") {
		return hidden
	}
	return strconv.Quote(s)
}

// shownURL is shown for what should be a URL. One that cannot be read may hold a
// password wherever it likes.
func shownURL(s string) string {
	if _, err := url.Parse(s); err != nil {
		return hidden
	}
	return shown(s)
}

// withoutSecrets cuts out what a message of the YAML library quotes, where that
// is a value or may hold a password.
func withoutSecrets(msg string) string {
	first, last := strings.Index(msg, `"`), strings.LastIndex(msg, `"`)
	if first < 0 || first == last {
		return msg
	}
	// The option is what follows a | or >: a value that begins with one.
	if strings.Contains(msg[first:last], "@") || strings.HasPrefix(msg, "invalid header option") {
		return msg[:first] + "…" + msg[last+1:]
	}
	return msg
}

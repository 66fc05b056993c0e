package policy

import (
	"fmt"
	"net/textproto"
	"strings"
)

// unfitField says why a request field cannot hold a key, or returns "".
func unfitField(name string) string {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case !isToken(name):
		return fmt.Sprintf("%q is not a field name", name)
	case strings.Contains(name, "_"):
		return fmt.Sprintf("%q has an underscore, which servers confuse with a hyphen", name)
	case HopByHop(canonical):
		return canonical + " is hop-by-hop and never reaches the upstream"
	case strings.HasPrefix(canonical, "Fencepost-"):
		return canonical + " is one of Fencepost's own fields"
	}
	switch canonical {
	case "Authorization", "Cookie":
		return canonical + " is a credential: it changes between retries and is never kept"
	case "Host", "Content-Length", "Expect", "Date":
		return canonical + " is set on the way and is not the sender's alone"
	}
	if payloadField(canonical) || canonical == "Prefer" {
		return canonical + " has a meaning of its own"
	}
	return ""
}

// payloadField reports whether a field says how the body is to be read.
func payloadField(name string) bool {
	return equalFold(name, "Content-Type") || equalFold(name, "Content-Encoding")
}

package policy

import (
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// prepare returns a copy of r that shares nothing with it and has its defaults
// filled in and its spellings made canonical, with every problem it found. A
// problem starts with the configuration key it is about (DESIGN section 9).
func prepare(r Route) (*Route, []error) {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if !isName(r.Name) {
		bad("name: must be 1 to 64 letters, digits, dots, underscores or hyphens")
	}
	if r.Host != "" {
		r.Host = strings.ToLower(strings.TrimSuffix(r.Host, "."))
		name, below := strings.CutPrefix(r.Host, "*.")
		if err := checkHost(name); err != nil {
			bad("match.host: %w", err)
		} else if below && isAddress(name) {
			bad("match.host: an address has no names below it")
		}
	}
	if err := checkPath(r.Path); err != nil {
		bad("match.path: %w", err)
	}
	r.Path = plainPath(r.Path)

	if !r.Egress {
		r.Upstream = prepareUpstream(r.Upstream, bad)
	} else if r.Upstream != nil {
		bad("upstream: a route of the egress proxy has none: the target is the request's own")
	}

	r.Methods = slices.Clone(r.Methods)
	if len(r.Methods) == 0 {
		r.Methods = []string{"POST", "PUT", "PATCH", "DELETE"}
	}
	checkMethods("methods", r.Methods, bad)
	r.UpstreamKey.Methods = slices.Clone(r.UpstreamKey.Methods)
	checkMethods("upstream_key.methods", r.UpstreamKey.Methods, bad)

	if r.Key.Missing > MissingDerive {
		bad("key.missing: %d is no known choice", r.Key.Missing)
	}
	if r.UpstreamKey.Send > SendDerived {
		bad("upstream_key.send: %d is no known choice", r.UpstreamKey.Send)
	}
	if r.Key.Header == "" {
		r.Key.Header = "Idempotency-Key"
	}
	if r.UpstreamKey.Header == "" {
		r.UpstreamKey.Header = r.Key.Header
	} else if reason := unfitField(r.UpstreamKey.Header); reason != "" {
		bad("upstream_key.header: %s", reason)
	}
	if reason := unfitField(r.Key.Header); reason != "" {
		bad("key.header: %s", reason)
	}
	r.Key.Header = textproto.CanonicalMIMEHeaderKey(r.Key.Header)
	r.UpstreamKey.Header = textproto.CanonicalMIMEHeaderKey(r.UpstreamKey.Header)

	r.prepareWay(bad)

	for _, name := range r.Fingerprint.Headers {
		// Content-Type and its like do say something about the payload, so they may
		// count here, though they cannot hold a key.
		if reason := unfitField(name); reason != "" && !payloadField(name) {
			bad("fingerprint.headers: %s", reason)
		} else if equalFold(name, r.Key.Header) {
			bad("fingerprint.headers: %q is the key's own field", name)
		}
	}
	r.Fingerprint.Headers = canonicalNames(slices.Clone(r.Fingerprint.Headers))

	if r.Fingerprint.Body > BodyAuto {
		bad("fingerprint.body: %d is no known choice", r.Fingerprint.Body)
	}
	r.Fingerprint.Ignore = slices.Clone(r.Fingerprint.Ignore)
	for _, p := range r.Fingerprint.Ignore {
		if err := CheckIgnore(r.Fingerprint.Body, p); err != nil {
			bad("fingerprint.ignore: %q %w", p, err)
		}
	}
	r.Fingerprint.ignored = newIgnored(r.Fingerprint.Ignore)

	if r.Key.Missing == MissingDerive && r.Key.Window <= 0 {
		bad("key.window: must be more than zero where keys are derived")
	}
	if r.SamePayload.Reject && r.SamePayload.Window <= 0 {
		bad("duplicates.window: must be more than zero where the same payload is rejected")
	}
	if r.UpstreamKey.Deduplicates < 0 {
		bad("upstream_key.deduplicates_for: must not be negative")
	}
	if r.UpstreamKey.Deduplicates > 0 && r.UpstreamKey.Send == SendNone {
		bad("upstream_key.deduplicates_for: the upstream gets no key (send: none), so it cannot recognise it")
	}
	if r.Wait < 0 {
		bad("duplicates.wait: must not be negative")
	}
	fill(&r.Timeout, 60*time.Second, "timeout", bad)
	fill(&r.Limits.Request, 10<<20, "limits.request", bad)
	fill(&r.Limits.Response, 1<<20, "limits.response", bad)
	fill(&r.Limits.Parse, 4<<20, "limits.parse", bad)
	return &r, problems
}

// checkMethods refuses methods that cannot be governed.
func checkMethods(key string, methods []string, bad func(string, ...any)) {
	for _, m := range methods {
		switch {
		case !isToken(m) || m != strings.ToUpper(m):
			bad("%s: %q is not a method; methods are upper case", key, m)
		case SafeMethod(m):
			bad("%s: %s is safe and is never governed", key, m)
		case m == "CONNECT":
			bad("%s: CONNECT opens a tunnel and is never governed", key)
		}
	}
}

// fill sets a number that is 0 to its default, and refuses a negative one.
func fill[N ~int64](n *N, standard N, key string, bad func(string, ...any)) {
	if *n == 0 {
		*n = standard
	} else if *n < 0 {
		bad("%s: must be positive", key)
	}
}

// prepareUpstream copies an upstream's URL with its host as Target spells it. No
// problem repeats the URL: it may hold a password.
func prepareUpstream(u *url.URL, bad func(string, ...any)) *url.URL {
	if u == nil {
		bad("upstream: is missing")
		return nil
	}
	up := *u
	up.Scheme = strings.ToLower(up.Scheme)
	if up.Scheme != "http" && up.Scheme != "https" {
		bad("upstream: the scheme must be http or https")
	}
	if up.User != nil {
		bad("upstream: a URL is no place for credentials")
	}
	if up.RawQuery != "" || up.ForceQuery || up.Fragment != "" {
		bad("upstream: must have no query and no fragment")
	}
	if err := checkHost(up.Hostname()); err != nil {
		bad("upstream: host: %w", err)
	}
	if port := up.Port(); port != "" {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || port[0] == '0' {
			bad("upstream: the port must be 1 to 65535")
		}
	}
	if err := checkPath(up.EscapedPath()); err != nil {
		bad("upstream: %w", err)
	}
	up.Host = targetHost(&up)
	return &up
}

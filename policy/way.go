package policy

import (
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// prepareWay checks what a route changes of a request on its way to the upstream.
func (r *Route) prepareWay(bad func(string, ...any)) {
	if r.StripPath != "" {
		r.StripPath = strings.TrimSuffix(r.StripPath, "/")
		if err := checkPath(r.StripPath); err != nil {
			bad("strip_path: %w", err)
		} else if p := plainPath(r.StripPath); !hasPathPrefix(r.Path, p, false) {
			bad("strip_path: must be the beginning of match.path, on a segment border")
		}
	}
	if r.Egress && (r.StripPath != "" || r.HostField != "") {
		bad("strip_path, host: are for routes with an upstream; through the egress proxy the target is the request's own")
	}
	if r.HostField != "" && r.HostField != HostOfClient {
		if u, err := url.Parse("//" + r.HostField); err != nil || u.Host != r.HostField || checkHost(u.Hostname()) != nil {
			bad("host: must be upstream, client, or a host name")
		}
		r.HostField = strings.ToLower(r.HostField)
	}
	r.prepareConnect(bad)
	r.Fields = r.Fields.prepare(r, bad)
}

func (r *Route) prepareConnect(bad func(string, ...any)) {
	c := r.Connect
	secure := r.Upstream == nil || r.Upstream.Scheme == "https"
	switch {
	case c.HTTP > H2C:
		bad("upstream_http: %d is no known choice", c.HTTP)
	case c.HTTP == HTTP2 && !secure:
		bad("upstream_http: http2 is negotiated by TLS, so the upstream must be https; for HTTP/2 without TLS use h2c")
	case c.HTTP == H2C && secure:
		bad("upstream_http: h2c is HTTP/2 without TLS, so the upstream must be http; with TLS use http2")
	}
	if !secure && (c.ServerName != "" || c.Roots != "" || c.Certificate != "" || c.Key != "") {
		bad("upstream_tls: the upstream is http, which has no TLS")
	}
	if (c.Certificate == "") != (c.Key == "") {
		bad("upstream_tls: needs both cert and key, or neither")
	}
	if c.ServerName != "" {
		if err := checkHost(c.ServerName); err != nil {
			bad("upstream_tls.server_name: %w", err)
		}
	}
}

// prepare returns a copy of the rule in canonical form.
func (f FieldRule) prepare(r *Route, bad func(string, ...any)) FieldRule {
	var out FieldRule
	check := func(key, name string) (string, bool) {
		if why := fixedField(name, r); why != "" {
			bad("%s: %s", key, why)
			return "", false
		}
		return textproto.CanonicalMIMEHeaderKey(name), true
	}
	for _, given := range slices.Sorted(maps.Keys(f.Set)) {
		name, ok := check("headers.set", given)
		if !ok {
			continue
		}
		if out.Set == nil {
			out.Set = make(map[string]string, len(f.Set))
		}
		if _, twice := out.Set[name]; twice {
			bad("headers.set: %s is set twice", name)
		}
		value := f.Set[given]
		if strings.ContainsFunc(value, func(c rune) bool { return c < 0x20 && c != '\t' || c == 0x7f }) || value != strings.Trim(value, " \t") {
			// Not repeated: it may be a secret.
			bad("headers.set: the value of %s has a control character, or a space at its end", name)
		}
		out.Set[name] = value
	}
	for _, given := range f.Remove {
		name, ok := check("headers.remove", given)
		if !ok {
			continue
		}
		if _, both := out.Set[name]; both {
			bad("headers.remove: %s is set too", name)
		}
		out.Remove = append(out.Remove, name)
	}
	return out
}

// fixedField returns why a field is not for a FieldRule to change, or "".
func fixedField(name string, r *Route) string {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case !isToken(name):
		return fmt.Sprintf("%q is not a field name", name)
	case HopByHop(canonical):
		return canonical + " is hop-by-hop and never reaches the upstream"
	case strings.HasPrefix(canonical, "Fencepost-"):
		return canonical + " is one of Fencepost's own fields and never reaches the upstream"
	case equalFold(name, r.Key.Header), equalFold(name, r.UpstreamKey.Header):
		return canonical + " holds the key; see upstream_key"
	}
	switch canonical {
	case "Host":
		return "Host is for the key host to say"
	case "Content-Length", "Expect":
		return canonical + " is set on the way"
	case "Content-Type", "Content-Encoding":
		return canonical + " says how the body is to be read, and the body is not changed"
	}
	return ""
}

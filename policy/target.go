package policy

import (
	"errors"
	"net/url"
	"strings"
)

// CheckTarget refuses a request target that a server behind us could read in
// another way than the rules here did. escapedPath is the path as it will be sent
// (url.URL.EscapedPath, or the raw bytes); "" means "/". rawQuery is without its
// question mark. Any error is the sender's fault; its text is fit for the sender.
//
// Refused in the path: anything but RFC 3986's characters and square brackets
// (net/http would encode the rest, and then what is hashed is not what is sent);
// a broken percent-encoding; dot segments, also encoded, before a ";" parameter, or
// between encoded slashes; a backslash, encoded or not, which some servers take for
// a slash; an encoded control character, which some take for the end.
//
// An encoded slash is allowed, as data that differs from a slash: APIs that put a
// path into a segment need it. What it does to the choice of route: Table.Match.
//
// The query is opaque: it is hashed and sent as received, whatever a form decoder
// would make of it. Only what cannot be on a request line is refused there, and a
// "#", which would make a fragment of the rest.
func CheckTarget(escapedPath, rawQuery string) error {
	if err := checkPath(escapedPath); err != nil {
		return err
	}
	for i := range len(rawQuery) {
		if !visible(rawQuery[i]) || rawQuery[i] == '#' {
			return errors.New("the query has a space, control or non-ASCII character or a #; percent-encode it")
		}
	}
	return nil
}

func checkPath(path string) error {
	if path != "" && path[0] != '/' {
		return errors.New("the path does not start with a slash")
	}
	var seg dotSegment
	for i := 0; i < len(path); i++ {
		b := path[i]
		if b == '%' {
			var ok bool
			if b, ok = unhex(path[i:]); !ok {
				return errors.New("the path has a % that two hexadecimal digits do not follow; send a literal % as %25")
			}
			i += 2
		} else if !pathByte(b) {
			return errors.New("the path has a character that must be percent-encoded, or a backslash")
		}
		if b < 0x20 || b == 0x7f || b == '\\' {
			return errors.New("the path has an encoded control character or backslash; servers disagree on what it means")
		}
		if seg.ends(b) {
			return errDotSegment
		}
	}
	if seg.ends('/') {
		return errDotSegment
	}
	return nil
}

var errDotSegment = errors.New("the path has a . or .. segment; send the path it leads to")

// pathByte reports whether b may stand in a path as it is: RFC 3986 section 3.3,
// and square brackets, which net/http also sends unencoded.
func pathByte(b byte) bool {
	return unreserved(b) || strings.IndexByte("/!$&'()*+,;=:@[]", b) >= 0
}

// dotSegment watches the decoded bytes of a path for segments that are "." or "..".
type dotSegment struct {
	dots  int  // dots seen, while there was nothing else
	other bool // the segment's name has another character
	param bool // past the ";": what follows is no part of the name
}

// ends takes the next byte, and reports whether it ends a dot segment.
func (s *dotSegment) ends(b byte) bool {
	switch {
	case b == '/':
		found := !s.other && (s.dots == 1 || s.dots == 2)
		*s = dotSegment{}
		return found
	case s.param:
	case b == ';':
		s.param = true
	case b == '.':
		s.dots++
	default:
		s.other = true
	}
	return false
}

// Target is where a request goes, in the one spelling that is both hashed and sent.
type Target struct {
	Scheme string // "http" or "https"
	Host   string // lower case; the scheme's default port left out; IPv6 in brackets
	Path   string // as sent, percent-encodings untouched; never empty
	Query  string // as sent, without its "?"; a lone "?" is not kept
	Dial   string // the host connected to where that is not Host, else ""
}

// String gives the target as an absolute URL.
func (t Target) String() string {
	s := t.Scheme + "://" + t.Host + t.Path
	if t.Query != "" {
		s += "?" + t.Query
	}
	return s
}

// Origin is where a client addressed its request.
type Origin struct {
	// Scheme is "http" or "https", for routes of the egress proxy.
	Scheme string
	// Host is the Host field or authority: as sent on the reverse proxy, as
	// Destination.Host spells it on the egress proxy.
	Host string
}

// Target joins the upstream's path prefix with a request's path and query, which
// CheckTarget has accepted. The route comes from a Table, and matched the request.
func (r *Route) Target(from Origin, escapedPath, rawQuery string) Target {
	if escapedPath == "" {
		escapedPath = "/"
	}
	if r.Egress {
		return Target{Scheme: from.Scheme, Host: from.Host, Path: escapedPath, Query: rawQuery}
	}
	t := Target{
		Scheme: r.Upstream.Scheme,
		Host:   targetHost(r.Upstream),
		Path:   strings.TrimSuffix(r.Upstream.EscapedPath(), "/") + stripped(escapedPath, r.StripPath),
		Query:  rawQuery,
	}
	switch r.HostField {
	case "":
	case HostOfClient:
		if from.Host != "" {
			t.setHost(strings.ToLower(from.Host))
		}
	default:
		t.setHost(r.HostField)
	}
	return t
}

// setHost makes the target one that is asked for under another name than the one
// it is dialled by.
func (t *Target) setHost(host string) {
	port := ":80"
	if t.Scheme == "https" {
		port = ":443"
	}
	if host = strings.TrimSuffix(host, port); host != t.Host {
		t.Dial, t.Host = t.Host, host
	}
}

// Addr gives the host that is connected to.
func (t *Target) Addr() string {
	if t.Dial != "" {
		return t.Dial
	}
	return t.Host
}

// stripped takes as many segments from the front of a path as prefix has. That the
// path begins with them, in one encoding or another, is for Table.Match to say.
func stripped(path, prefix string) string {
	for range strings.Count(strings.TrimSuffix(prefix, "/"), "/") {
		next := strings.IndexByte(path[1:], '/')
		if next < 0 {
			return "/"
		}
		path = path[1+next:]
	}
	return path
}

// targetHost gives a URL's host as Target spells it.
func targetHost(u *url.URL) string {
	host := strings.ToLower(u.Host)
	port := ":80"
	if u.Scheme == "https" {
		port = ":443"
	}
	return strings.TrimSuffix(strings.TrimSuffix(host, port), ":")
}

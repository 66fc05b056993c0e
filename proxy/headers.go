package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"fencepost/policy"
)

// outgoingHeader is the client's header as the upstream gets it: without
// hop-by-hop fields, without Fencepost's own, without fields that an
// underscore makes look like others, and with the changes that this hop makes.
func (p *Proxy) outgoingHeader(r *http.Request, route *policy.Route) http.Header {
	out := make(http.Header, len(r.Header)+2)
	named := r.Header["Connection"]
	for name, values := range r.Header {
		switch {
		case policy.HopByHop(name), ownField(name), name == "Expect",
			!route.Egress && strings.IndexByte(name, '_') >= 0,
			len(named) > 0 && policy.NamedInConnection(named, name):
			continue
		}
		out[name] = values
	}
	if te := r.Header["Te"]; len(te) > 0 && hasToken(te, "trailers") {
		out["Te"] = []string{"trailers"}
	}
	if _, ok := out["User-Agent"]; !ok {
		// Keeps Go's own name out of a request that had none.
		out["User-Agent"] = []string{""}
	}
	if !route.Egress {
		// Through the egress proxy nothing is added and nothing taken: what these
		// fields say is the client's own.
		p.forward(out, r)
	}
	for _, name := range route.Fields.Remove {
		delete(out, name)
	}
	for name, value := range route.Fields.Set {
		out[name] = []string{value}
	}
	return out
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			part, _, _ = strings.Cut(part, ";")
			if strings.EqualFold(textproto.TrimString(part), token) {
				return true
			}
		}
	}
	return false
}

// forward applies the policy for X-Forwarded-* and Forwarded.
func (p *Proxy) forward(h http.Header, r *http.Request) {
	mode := p.cfg.Forwarded
	if mode == ForwardedPass {
		return
	}
	if mode != ForwardedAppend {
		delete(h, "X-Forwarded-For")
		delete(h, "X-Forwarded-Host")
		delete(h, "X-Forwarded-Proto")
		delete(h, "X-Forwarded-Port")
		delete(h, "X-Real-Ip")
	}
	// Our hop is not in a Forwarded field, so a chain that passes through here
	// would lie by omission.
	delete(h, "Forwarded")
	if mode == ForwardedOff {
		return
	}
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		if prior := h["X-Forwarded-For"]; len(prior) > 0 {
			ip = strings.Join(prior, ", ") + ", " + ip
		}
		h["X-Forwarded-For"] = []string{ip}
	}
	if mode == ForwardedSet || h["X-Forwarded-Host"] == nil {
		h["X-Forwarded-Host"] = []string{r.Host}
	}
	if mode == ForwardedSet || h["X-Forwarded-Proto"] == nil {
		proto := "http"
		if r.TLS != nil {
			proto = "https"
		}
		h["X-Forwarded-Proto"] = []string{proto}
	}
}

// targetURL is the URL whose bytes are exactly the target's.
func targetURL(t policy.Target) *url.URL {
	u := &url.URL{Scheme: t.Scheme, Host: t.Addr(), RawQuery: t.Query}
	if p, err := url.PathUnescape(t.Path); err == nil {
		u.Path, u.RawPath = p, t.Path
	} else {
		// unreachable: policy.CheckTarget refused what does not unescape.
		u.Opaque = t.Path
	}
	return u
}

// passesOn reports whether a client's trailer reaches the upstream. A key or a
// credential is none that would.
func passesOn(name string) bool {
	return !policy.HopByHop(name) && !ownField(name) && strings.IndexByte(name, '_') < 0 && name != "Authorization"
}

// trailerOf returns the trailers of a request whose body was read to its end, nil
// for none.
func trailerOf(r *http.Request, keyHeader string) http.Header {
	var t http.Header
	for name, values := range r.Trailer {
		if len(values) == 0 || !passesOn(name) || name == keyHeader {
			continue
		}
		if t == nil {
			t = make(http.Header, len(r.Trailer))
		}
		t[name] = values
	}
	return t
}

// outgoing is the one request that is sent.
func (x *exchange) outgoing(ctx context.Context) *http.Request {
	h := x.p.outgoingHeader(x.req, x.route)
	in := canonical(x.route.Key.Header)
	value := x.req.Header[in]
	delete(h, in)
	switch up := &x.route.UpstreamKey; {
	case up.Send == policy.SendDerived:
		h[canonical(up.Header)] = []string{policy.DeriveUpstreamKey(x.id.Scope, x.id.Key, x.target)}
	case up.Send == policy.SendSame && up.Deduplicates > 0 && len(value) > 0:
		// In one spelling: "k" and k are one key here, and would be two effects to an
		// upstream that is relied upon to recognise it.
		h[canonical(up.Header)] = []string{x.id.Key}
	case up.Send == policy.SendSame && len(value) > 0:
		// As the caller wrote it: some upstreams want the quotes, some do not.
		h[canonical(up.Header)] = value[:1]
	}
	if len(x.route.Outcomes) > 0 {
		// The rules read the answer's body. Compressed it would tell them nothing, and
		// what they would have called "unknown" would pass for final.
		h["Accept-Encoding"] = []string{"identity"}
	}
	// RoundTrip reads the fields below and the context; nothing else is needed.
	out := (&http.Request{
		Method: x.req.Method, URL: targetURL(x.target), Host: x.target.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	switch {
	case x.trailer != nil:
		// Only a body without a declared length can have trailers on HTTP/1.1.
		out.ContentLength, out.Trailer = -1, x.trailer
		out.Body = io.NopCloser(x.body.reader())
	case x.body.size == 0:
		out.Body = http.NoBody
	default:
		// In this form a body in memory leaves in one write with the header, so that
		// a write that fails has sent nothing.
		out.ContentLength = x.body.size
		out.Body = io.NopCloser(x.body.reader())
	}
	return out
}

// copyResponseHeader copies an upstream's answer without its hop-by-hop fields
// and without what only we may say.
func copyResponseHeader(dst, src http.Header) {
	named := src["Connection"]
	for name, values := range src {
		if !passesBack(name) || (len(named) > 0 && policy.NamedInConnection(named, name)) {
			continue
		}
		dst[name] = values
	}
	if _, ok := dst["Content-Type"]; !ok {
		// The upstream sent none; net/http must not guess one.
		dst["Content-Type"] = nil
	}
}

// passesBack reports whether an upstream's field, or trailer, reaches the caller.
func passesBack(name string) bool {
	return !policy.HopByHop(name) && !ownField(name) && name != headerReplayed
}

// announceTrailer promises the trailers that the upstream promised.
func announceTrailer(w http.ResponseWriter, resp *http.Response) {
	if len(resp.Trailer) == 0 {
		return
	}
	names := make([]string, 0, len(resp.Trailer))
	for name := range resp.Trailer {
		if passesBack(name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		w.Header()["Trailer"] = []string{strings.Join(names, ", ")}
	}
}

// copyTrailer passes on the trailers, announced or not. It is called when the
// body was read to its end.
func copyTrailer(w http.ResponseWriter, resp *http.Response) {
	for name, values := range resp.Trailer {
		if !passesBack(name) {
			continue
		}
		for _, v := range values {
			w.Header().Add(http.TrailerPrefix+name, v)
		}
	}
}

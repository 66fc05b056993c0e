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
// underscore makes look like others, and with this hop's forwarding policy.
func (p *Proxy) outgoingHeader(r *http.Request) http.Header {
	out := make(http.Header, len(r.Header)+2)
	named := r.Header["Connection"]
	for name, values := range r.Header {
		switch {
		case policy.HopByHop(name), ownField(name), name == "Expect",
			strings.IndexByte(name, '_') >= 0,
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
	p.forward(out, r)
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
	u := &url.URL{Scheme: t.Scheme, Host: t.Host, RawQuery: t.Query}
	if p, err := url.PathUnescape(t.Path); err == nil {
		u.Path, u.RawPath = p, t.Path
	} else {
		// unreachable: policy.CheckTarget refused what does not unescape.
		u.Opaque = t.Path
	}
	return u
}

// outgoing is the one request that is sent. Trailers stay behind: it is sent with its
// length, and then there is no place for them.
func (x *exchange) outgoing(ctx context.Context) *http.Request {
	h := x.p.outgoingHeader(x.req)
	in := canonical(x.route.Key.Header)
	value := x.req.Header[in]
	delete(h, in)
	switch up := &x.route.UpstreamKey; {
	case up.Send == policy.SendDerived:
		h[canonical(up.Header)] = []string{policy.DeriveUpstreamKey(x.id.Scope, x.id.Key, x.target)}
	case up.Send == policy.SendSame && len(value) > 0:
		// As the caller wrote it: some upstreams want the quotes, some do not.
		h[canonical(up.Header)] = value[:1]
	}
	// RoundTrip reads the fields below and the context; nothing else is needed.
	out := (&http.Request{
		Method: x.req.Method, URL: targetURL(x.target), Host: x.target.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	switch {
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

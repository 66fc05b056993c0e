package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"

	"fencepost/policy"
	"fencepost/proxy/internal/upstream"
)

// pass is a plain reverse proxy for what is not governed. It keeps no record
// and gives no promise but one: a request that is not safe is sent once.
//
// It is written out rather than left to httputil.ReverseProxy because that one
// copies more than this needs, and because it would let net/http send a keyed
// request again.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, route *policy.Route) {
	target := route.Target(r.URL.EscapedPath(), r.URL.RawQuery)
	if isUpgrade(r) {
		p.upgrade(w, r, target)
		return
	}
	out := r.WithContext(r.Context())
	out.RequestURI = ""
	out.URL = targetURL(target)
	out.Host = target.Host
	out.Header = p.outgoingHeader(r)
	out.Close = false
	p.passTrailer(out, r)
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	resp, err := p.roundTrip(out, target)
	if err == nil && !finalStatus(resp.StatusCode) {
		resp.Body.Close()
		err = &upstream.SendError{Err: fmt.Errorf("status %d is not the status of an answer", resp.StatusCode)}
	}
	if err != nil {
		p.passFailed(w, r, target, err)
		return
	}
	defer resp.Body.Close()
	announceTrailer(w, resp)
	copyResponseHeader(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if err := p.copy(w, resp); err != nil {
		// The status is out; only a broken connection tells that this is not all.
		panic(http.ErrAbortHandler)
	}
	copyTrailer(w, resp)
}

// passTrailer passes on the trailers that the client announced, by the rules of
// its header. What it did not announce stays behind.
func (p *Proxy) passTrailer(out, in *http.Request) {
	out.Trailer = nil
	for name := range in.Trailer {
		if !trailerPasses(name) {
			continue
		}
		if out.Trailer == nil {
			out.Trailer = make(http.Header)
		}
		out.Trailer[name] = nil
	}
	if out.Trailer != nil {
		out.Body = &trailing{in.Body, in, out}
	}
}

// trailerPasses reports whether a request's trailer is the upstream's business.
func trailerPasses(name string) bool {
	return !policy.HopByHop(name) && !ownField(name) && strings.IndexByte(name, '_') < 0 && name != "Authorization"
}

// trailing is a body whose trailers are copied when it has been read.
type trailing struct {
	io.ReadCloser
	in, out *http.Request
}

func (t *trailing) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err == io.EOF {
		for name := range t.out.Trailer {
			t.out.Trailer[name] = t.in.Trailer[name]
		}
	}
	return n, err
}

// roundTrip sends out: through the ordinary transport when repeating it is
// safe, through the single-send pool otherwise.
func (p *Proxy) roundTrip(out *http.Request, t policy.Target) (*http.Response, error) {
	if policy.SafeMethod(out.Method) {
		return p.transport.RoundTrip(out)
	}
	conn, err := p.pool.Connect(out.Context(), t.Scheme, t.Host)
	if err != nil {
		return nil, err
	}
	return conn.RoundTrip(out)
}

// passFailed answers a request that was passed through and not answered.
func (p *Proxy) passFailed(w http.ResponseWriter, r *http.Request, t policy.Target, err error) {
	if r.Context().Err() != nil {
		// The caller left; nobody reads an answer.
		panic(http.ErrAbortHandler)
	}
	var se *upstream.SendError
	if policy.SafeMethod(r.Method) || !errors.As(err, &se) || se.NotSent {
		writeProblem(w, &problem{code: codeUnreachable, detail: "No answer from " + t.Scheme + "://" + t.Host + ": " + err.Error() + "."})
		return
	}
	// Not governed, so there is no record to look up; but the truth is the same.
	writeProblem(w, &problem{code: codeUnknown, status: http.StatusBadGateway, detail: "The request was sent, but the connection was lost: " + err.Error() + ". It may have taken effect. It is not governed, so nothing is recorded about it."})
}

// copy passes a body on, at once where its length is not known beforehand.
func (p *Proxy) copy(w http.ResponseWriter, resp *http.Response) error {
	if resp.ContentLength == 0 {
		return nil
	}
	var rc *http.ResponseController
	if resp.ContentLength < 0 {
		rc = http.NewResponseController(w)
	}
	buf := p.buffers.Get()
	defer p.buffers.Put(buf)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if rc != nil && err == nil {
				if ferr := rc.Flush(); ferr != nil {
					return ferr
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// isUpgrade reports whether r asks for the one upgrade that is let through.
// Other protocols are not switched to: the Upgrade field is dropped and the
// request goes on as it is (RFC 9110, section 7.8).
func isUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoMajor == 1 &&
		strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && hasToken(r.Header["Connection"], "upgrade")
}

// upgrade switches a connection to WebSocket. What is sent over it afterwards
// is not governed.
func (p *Proxy) upgrade(w http.ResponseWriter, r *http.Request, target policy.Target) {
	rp := &httputil.ReverseProxy{
		Transport: p.transport,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL = targetURL(target)
			pr.Out.Host = target.Host
			up, conn := pr.Out.Header["Upgrade"], pr.Out.Header["Connection"]
			pr.Out.Header = p.outgoingHeader(pr.In)
			if up != nil {
				pr.Out.Header["Upgrade"], pr.Out.Header["Connection"] = up, conn
			}
		},
		ErrorLog: p.errorLog,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			p.passFailed(w, r, target, err)
		},
	}
	rp.ServeHTTP(w, r)
}

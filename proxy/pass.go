package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"

	"fencepost/policy"
	"fencepost/proxy/internal/front"
	"fencepost/proxy/internal/upstream"
)

// pass is a plain reverse proxy for what is not governed. It keeps no record
// and gives no promise but one: a request that is not safe is sent once.
//
// It is written out rather than left to httputil.ReverseProxy because that one
// copies more than this needs, and because it would let net/http send a keyed
// request again.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, id identity) {
	target := id.route.Target(id.origin, r.URL.EscapedPath(), r.URL.RawQuery)
	if isUpgrade(r) {
		p.upgrade(w, r, id, target)
		return
	}
	ctx, done := p.patience(r)
	defer done()
	i := p.inform(w, r)
	defer i.end()
	out := r.WithContext(i.trace(ctx))
	out.RequestURI = ""
	out.URL = targetURL(target)
	if id.asSent {
		sent := *r.URL
		sent.Scheme, sent.Host = target.Scheme, target.Host
		out.URL = &sent
	}
	out.Host = target.Host
	out.Header = p.outgoingHeader(r, id.route)
	out.Close = false
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	} else if r.Body != nil && r.ProtoMajor == 1 {
		s := &steady{ReadCloser: r.Body, rc: http.NewResponseController(w), patience: p.cfg.BodyTimeout}
		defer s.rest()
		out.Body = s
	}
	p.passTrailer(out, r)
	resp, err := id.way.roundTrip(out, target)
	if id.route.Egress && !provedUnsent(err) {
		p.tally.passed(r.Method, target.Host, target.Path, policy.SafeMethod(r.Method), len(r.Header[headerKey]) > 0)
	}
	if err == nil && !finalStatus(resp.StatusCode) {
		resp.Body.Close()
		err = &upstream.SendError{Err: fmt.Errorf("status %d is not the status of an answer", resp.StatusCode)}
	}
	if err != nil {
		i.end()
		p.passFailed(w, ctx, r, target, err)
		return
	}
	defer resp.Body.Close()
	i.end()
	announceTrailer(w, resp)
	copyResponseHeader(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if err := p.copy(w, resp); err != nil {
		// The status is out; only a broken connection tells that this is not all.
		panic(http.ErrAbortHandler)
	}
	copyTrailer(w, resp)
}

// provedUnsent reports whether an error says that nothing of a request was sent.
func provedUnsent(err error) bool {
	var ce *upstream.ConnectError
	var se *upstream.SendError
	return errors.As(err, &ce) || errors.As(err, &se) && se.NotSent
}

// patience is the context of a request that is passed on. A client of HTTP/1 that
// ended its side may still read: the answer has a while to reach it. Where the
// client is gone altogether, writing to it fails, and that ends the request.
func (p *Proxy) patience(r *http.Request) (context.Context, context.CancelFunc) {
	if r.ProtoMajor != 1 {
		return context.WithCancel(r.Context())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	var timer atomic.Pointer[time.Timer]
	stop := context.AfterFunc(r.Context(), func() { timer.Store(time.AfterFunc(p.cfg.BodyTimeout, cancel)) })
	return ctx, func() {
		stop()
		cancel()
		if t := timer.Load(); t != nil {
			t.Stop()
		}
	}
}

// steady is the body of a request of HTTP/1 that must go on coming: while it does, it
// holds a connection to the upstream. (A stream of HTTP/2 may rest, and some do.)
type steady struct {
	io.ReadCloser
	rc       *http.ResponseController
	patience time.Duration
	stalled  atomic.Bool
}

func (s *steady) Read(b []byte) (int, error) {
	_ = s.rc.SetReadDeadline(time.Now().Add(s.patience))
	n, err := s.ReadCloser.Read(b)
	switch {
	case err == io.EOF:
		s.rest()
	case err != nil:
		s.stalled.Store(true)
	}
	return n, err
}

// rest ends the limit: what net/http reads from now on is none of the body. Where
// the body did not come to its end, the limit stays: nobody waits for the rest of it.
func (s *steady) rest() {
	if !s.stalled.Load() {
		_ = s.rc.SetReadDeadline(time.Time{})
	}
}

// passTrailer passes on the trailers that the client announced, by the rules of
// its header. What it did not announce stays behind.
func (p *Proxy) passTrailer(out, in *http.Request) {
	out.Trailer = nil
	for name := range in.Trailer {
		if passesOn(name) {
			if out.Trailer == nil {
				out.Trailer = make(http.Header)
			}
			out.Trailer[name] = nil
		}
	}
	if out.Trailer != nil {
		out.Body = &trailing{out.Body, in, out}
	}
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
func (y *way) roundTrip(out *http.Request, t policy.Target) (*http.Response, error) {
	if safe(out) {
		return y.transport.RoundTrip(out)
	}
	conn, err := y.loose.Connect(out.Context(), t.Scheme, t.Addr())
	if err != nil {
		return nil, err
	}
	return conn.RoundTrip(out)
}

// passFailed answers a request that was passed through and not answered.
func (p *Proxy) passFailed(w http.ResponseWriter, ctx context.Context, r *http.Request, t policy.Target, err error) {
	if ctx.Err() != nil {
		// The caller left; nobody reads an answer.
		panic(http.ErrAbortHandler)
	}
	if f, ok := errors.AsType[*forbiddenError](err); ok {
		p.tally.refusedHost(t.Host, f.short)
		writeProblem(w, f.problem(t.Host))
		return
	}
	var se *upstream.SendError
	if safe(r) || !errors.As(err, &se) || se.NotSent {
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
	// A client that stops reading must not hold the upstream's connection.
	rc := http.NewResponseController(w)
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	buf := p.buffers.Get()
	defer p.buffers.Put(buf)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(p.cfg.BodyTimeout))
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if resp.ContentLength < 0 && err == nil {
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
func (p *Proxy) upgrade(w http.ResponseWriter, r *http.Request, id identity, target policy.Target) {
	front.Switching(r)
	rp := &httputil.ReverseProxy{
		Transport: id.way.transport,
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode != http.StatusSwitchingProtocols {
				// The client may have sent what is no HTTP any more.
				resp.Header.Set("Connection", "close")
			}
			return nil
		},
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL = targetURL(target)
			pr.Out.Host = target.Host
			up, conn := pr.Out.Header["Upgrade"], pr.Out.Header["Connection"]
			pr.Out.Header = p.outgoingHeader(pr.In, id.route)
			if up != nil {
				pr.Out.Header["Upgrade"], pr.Out.Header["Connection"] = up, conn
			}
		},
		ErrorLog: p.errorLog,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			w.Header().Set("Connection", "close") // as above
			p.passFailed(w, r.Context(), r, target, err)
		},
	}
	rp.ServeHTTP(w, r)
}

package upstream

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
)

// ErrSpent is the cause of the SendError of a Conn that was used or released before.
var ErrSpent = errors.New("upstream: the connection was already used or released")

// A Conn is the right to send one request on a connection. It ends with Release,
// with a failed RoundTrip, or with the end of the response's body. RoundTrip and
// Release may be called from any goroutine, but only the first of them counts.
type Conn struct {
	link   *link
	reused bool
	state  atomic.Uint32
	mark   int64         // HTTP/1.1: wire.sent when the connection was handed out
	reads  uint64        // HTTP/2: mux.reads when the request was handed over
	stream atomic.Uint32 // HTTP/2: the request's stream, once its HEADERS may have left

	started atomic.Bool // HTTP/2: the request was taken off link.pending
	body    body        // of the response; here to save an allocation
}

const (
	connReady uint32 = iota // neither used nor released
	connSent                // RoundTrip was called
	connOver                // the connection was given back
)

func newConn(l *link, reused bool) *Conn {
	return &Conn{link: l, reused: reused, mark: l.wire.sent.Load()}
}

// Reused reports whether the connection has carried a request before, or, with
// HTTP/2, carries others.
func (c *Conn) Reused() bool { return c.reused }

// Release gives the connection back unused. After RoundTrip it does nothing, so it
// can be deferred.
func (c *Conn) Release() {
	if c.state.CompareAndSwap(connReady, connOver) {
		c.giveBack()
	}
}

// giveBack undoes Connect.
func (c *Conn) giveBack() {
	l := c.link
	if l.wire.mux != nil {
		l.part(false)
		return
	}
	l.cc.Release()
	l.pool.putIdle(l)
}

// RoundTrip sends the request, once, and returns the response whatever its status.
// Redirects are not followed. The caller must read the response's body to its end,
// if the connection is to be used again, and close it.
//
// Every error is a *SendError. It says whether it is proved that nothing was sent.
// A second call sends nothing and fails with ErrSpent and NotSent false: it says
// nothing about the first.
//
// The request becomes RoundTrip's own: GetBody and any Expect field are removed from
// it, and its body is closed, also on errors, perhaps more than once. Its URL must
// have the scheme and host that Connect was called with. Its body should be in memory
// or in a file: on HTTP/1.1 a Read that blocks keeps RoundTrip from returning, even
// past the deadline. A bytes.Reader or strings.Reader, bare or in io.NopCloser, leaves
// in one write with the header.
func (c *Conn) RoundTrip(req *http.Request) (*http.Response, error) {
	if !c.state.CompareAndSwap(connReady, connSent) {
		return nil, &SendError{Err: ErrSpent}
	}
	ctx := req.Context()
	if err := c.refuse(req); err != nil {
		c.state.Store(connOver)
		c.giveBack()
		closeBody(req)
		return nil, &SendError{NotSent: true, Timeout: isTimeout(ctx, err), Err: err}
	}
	prepare(req)
	if c.link.wire.mux != nil {
		return c.roundTripHTTP2(ctx, req)
	}

	resp, err := c.link.cc.RoundTrip(req)
	if err != nil {
		unsent := c.link.wire.unsent(c.mark)
		c.over(false)
		closeBody(req)
		return nil, &SendError{NotSent: unsent, Timeout: isTimeout(ctx, err), Err: err}
	}
	c.follow(req, resp)
	return resp, nil
}

// refuse returns why a request must not be handed to net/http at all, or nil.
func (c *Conn) refuse(req *http.Request) error {
	if ctx := req.Context(); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// net/http would send it to this connection's peer, whatever the URL says.
	if key := c.link.host.key; req.URL == nil || req.URL.Scheme != key.scheme || req.URL.Host != key.host {
		return errOtherHost
	}
	return nil
}

var errOtherHost = errors.New("upstream: the request's URL is not for the host of this connection")

// prepare takes from a request what could make it wait, or be sent twice.
func prepare(req *http.Request) {
	req.GetBody = nil // nothing below reads it with a ClientConn; keep it so
	for name := range req.Header {
		if len(name) == len("Expect") && strings.EqualFold(name, "Expect") {
			delete(req.Header, name) // the client's 100-continue was answered before
		}
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// follow arranges for the connection to be given back at the response's end.
func (c *Conn) follow(req *http.Request, resp *http.Response) {
	resp.TLS = c.link.wire.tls // net/http does not know of it
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return // the body is the connection now, and closes it
	}
	keep := true
	if c.link.wire.mux == nil {
		keep = !resp.Close && !req.Close
		c.link.heed(resp.Header)
	}
	if resp.Body == http.NoBody {
		c.over(keep)
		return
	}
	c.body = body{ReadCloser: resp.Body, conn: c, keep: keep}
	resp.Body = &c.body
}

// over ends the connection's use, once. keep says that the exchange ended cleanly.
func (c *Conn) over(keep bool) {
	if !c.state.CompareAndSwap(connSent, connOver) {
		return
	}
	l := c.link
	switch {
	case l.wire.mux != nil:
		l.part(!c.started.CompareAndSwap(false, true))
	case keep:
		l.wire.quiet.Store(true)
		l.pool.putIdle(l)
	default:
		l.shut()
	}
}

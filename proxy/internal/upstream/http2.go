package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
)

// roundTripHTTP2 is RoundTrip on a connection that carries other requests too, where
// bytes prove nothing.
func (c *Conn) roundTripHTTP2(ctx context.Context, req *http.Request) (*http.Response, error) {
	mux := c.link.wire.mux
	c.reads = mux.reads.Load()
	trace := &httptrace.ClientTrace{WroteHeaders: func() {
		c.stream.Store(mux.claim())
		if c.started.CompareAndSwap(false, true) { // it may come after the end
			c.link.started()
		}
	}}
	resp, err := c.link.cc.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		unsent := c.unsentHTTP2(ctx, err)
		if c.stream.Load() == 0 && ctx.Err() == nil {
			closeBody(req) // no stream, so perhaps nobody else did
		}
		if ctx.Err() != nil && mux.reads.Load() == c.reads {
			// Silent for the whole request: perhaps the path is dead, and every later
			// request would end in the same doubt.
			c.link.retire()
		}
		c.over(false)
		return nil, &SendError{NotSent: unsent, Timeout: isTimeout(ctx, err), Err: err}
	}
	resp.Request = req
	c.follow(req, resp)
	return resp, nil
}

// unsentHTTP2 reports whether it is proved that nothing was sent, or, unless the
// peer's word is doubted, that nothing was processed.
func (c *Conn) unsentHTTP2(ctx context.Context, err error) bool {
	trust := !c.link.pool.opts.DoubtRefusals
	if refused(err) {
		return trust
	}
	if ctx.Err() != nil {
		// net/http returns at once then, and its writer may still be about to send.
		return false
	}
	// Otherwise it returns when the stream is over: if no HEADERS have left by now,
	// none will.
	stream := c.stream.Load()
	return stream == 0 || trust && stream > c.link.wire.mux.lastAccepted.Load()
}

// refused reports whether an error is the peer's RST_STREAM with REFUSED_STREAM
// (RFC 9113 section 8.7). Every other code may follow an effect.
func refused(err error) bool {
	stream, ok := errors.AsType[streamError](err)
	const refusedStream = 0x7
	return ok && stream.Code == refusedStream && stream.Cause != nil
}

// streamError has the shape of golang.org/x/net/http2.StreamError, which is all that
// the error of net/http's own copy looks at in its As method. Cause is nil in errors
// that did not come from the peer.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "HTTP/2 stream error" }

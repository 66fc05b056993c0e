// Package upstream is the transport of governed requests: it sends a request at most
// once, and says what is proved when it fails.
//
// # Why not http.Transport
//
// A Transport re-sends. It repeats a POST that carries Idempotency-Key when a
// connection that was used before dies without an answer, once for each such
// connection it holds; on HTTP/2 it repeats any POST it can rewind after
// PROTOCOL_ERROR. Its errors do not tell whether a request has left: "EOF" is what a
// failed TLS handshake and an executed request both end in. And the moment between
// "there is a connection" and "the first byte leaves", in which Fencepost makes its
// intent durable, is inside RoundTrip.
//
// So this package keeps a pool of http.ClientConn (Go 1.26): one connection each, no
// retry, no redirect, errors as they came. The order of a send is
//
//	conn, err := pool.Connect(ctx, "https", "api.example.com")   an error: nothing was sent
//	… write DISPATCHED, durably; if that fails, conn.Release() …
//	resp, err := conn.RoundTrip(req)                             once
//
// # What is promised
//
//  1. A Conn sends one request, one time, on one connection. Nothing here repeats
//     anything; whether to try again is for the caller, who has the ledger.
//  2. When Connect returns, with or without an error, no byte of a request has left.
//  3. SendError.NotSent is true only on proof that the peer has not processed the
//     request and will not. No verdict is taken from the text or type of an error,
//     but for REFUSED_STREAM, which is the peer's own statement.
//  4. An answer belongs to its request: bytes that arrive while no request is under
//     way, or that are left over from an answer, end their connection.
//
// # Observations and verdicts
//
//	observation                                             HTTP/1.1     HTTP/2
//	Connect failed: DNS, dial, TLS, wait                    not sent     not sent
//	the context had ended before RoundTrip                  not sent     not sent
//	the peer closed the connection before a byte left       not sent     not sent
//	no byte left since Connect, whatever the error          not sent     –
//	no HEADERS left, and the stream is over                 –            not sent
//	RST_STREAM with REFUSED_STREAM                          –            not sent *
//	GOAWAY with a last stream below the request's           –            not sent *
//	GOAWAY with a last stream at or above it                –            doubt
//	RST_STREAM with any other code                          –            doubt
//	the context ended                                       by bytes     doubt
//	close, reset or broken answer after a byte left         doubt        doubt
//	an answer, whatever its status                          answered     answered
//	an answer whose body breaks off                         answered; reading the body fails
//
// * The peer's word (RFC 9113 section 8.7). Options.DoubtRefusals makes it doubt.
//
// # How "no byte left" is known on HTTP/1.1
//
// The pool dials, and does TLS, itself, and gives net/http a wire to write to. The
// wire adds up what the socket, below TLS, took while net/http was writing: a TLS
// alert on closing is not part of it. The sum is noted in Connect. After an error the
// wire is sealed, so that no later write gets through, and the verdict is "not sent"
// if no write is under way and the sum is what it was. This does not rest on
// net/http waiting for its writer before RoundTrip returns; but it does wait (a test
// would show a Go that does not), and so the verdict is as sharp as it can be.
//
// The wire also refuses to write once the peer's side has ended. A peer that has
// said goodbye cannot answer, but one that only half-closed could still execute.
//
// # What is known on HTTP/2
//
// A connection carries other requests, so bytes prove nothing. net/http says when a
// request's HEADERS were written; the wire reads along enough of the frames to tell
// which stream that was and what GOAWAY said of it. If the context ends, net/http
// returns at once and its writer may still send: that is always doubt. This is why
// HTTP/2 is offered only on request (Options.HTTP2).
//
// # The pool
//
// Idle HTTP/1.1 connections of a host are a stack: the one used last is used next.
// One is given out only when net/http's reader has come back to wait on it, which
// shows that its buffer is empty, and only if it is not known to be closed. Requests
// that meet the end of an idle connection are in doubt, so idle times are short, and
// the peer's own (Keep-Alive: timeout) is honoured with a margin. HTTP/2 connections
// are shared up to the peer's stream limit; one that was silent for the whole of a
// request that timed out takes no more.
package upstream

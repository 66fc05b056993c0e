// Package front is the client's side of a connection: what stands between a
// socket and net/http's server.
//
// # Framing
//
// A proxy must read a request's borders exactly as everybody behind it does.
// net/http is lenient in places where RFC 9112 lets it be: a request with both
// Transfer-Encoding and Content-Length is read by the former, a folded field is
// joined, a repeated Content-Length is taken once. By the time a handler runs, the
// header shows none of that. So an [Inspector] reads the same bytes as net/http
// does, follows the framing by itself, and tells the handler what was doubtful about
// its request ([Doubt]). Where the framing is broken beyond doubt (a bad chunk), the
// connection's next Read fails, so that no handler takes the rest for a body.
//
// The Inspector never repairs anything, and it agrees with net/http or the request
// is refused: what it can't follow it reports.
//
// HTTP/2 frames say their own length; those connections are not inspected.
//
// # TLS
//
// [Handshakes] completes TLS handshakes beside each other and hands finished
// connections to one server, HTTP/1.1 and HTTP/2 by ALPN, so that one Shutdown
// drains them all.
package front

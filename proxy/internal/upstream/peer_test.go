package upstream

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// speech is what a peer speaks.
type speech struct {
	name     string
	tls, mux bool
}

var (
	plain1  = speech{name: "http1"}
	secure1 = speech{name: "http1-tls", tls: true}
	plain2  = speech{name: "h2c", mux: true}
	secure2 = speech{name: "h2-tls", tls: true, mux: true}

	everySpeech = []speech{plain1, secure1, plain2, secure2}
)

func (s speech) scheme() string {
	if s.tls {
		return "https"
	}
	return "http"
}

// options are those of a pool that reaches a peer of this speech.
func (s speech) options() Options {
	return Options{TLS: &tls.Config{RootCAs: identity().roots}, HTTP2: s.mux, H2C: s.mux}
}

// identity is a certificate for 127.0.0.1, and what trusts it.
var identity = sync.OnceValue(func() (id struct {
	cert  tls.Certificate
	roots *x509.CertPool
}) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	id.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	id.cert.Leaf, _ = x509.ParseCertificate(der)
	id.roots = x509.NewCertPool()
	id.roots.AddCert(id.cert.Leaf)
	return id
})

// A peer is an upstream over a raw socket. It counts what was delivered: requests,
// by key, that it received to their last byte, and so could have executed.
type peer struct {
	t      testing.TB
	speech speech
	addr   string
	ln     net.Listener

	// act answers a complete request; head, if set, is called before the body is
	// read, and returns false to have the rest ignored. Keys that begin with "warm"
	// see neither and are answered 200.
	act  func(*exchange)
	head func(*exchange) bool
	// greet, if set, is called with each new connection, before TLS.
	greet func(net.Conn)
	// streams is MAX_CONCURRENT_STREAMS, or 0 for no limit.
	streams uint32
	// settings, if set, is called before SETTINGS are sent.
	settings func()

	mu        sync.Mutex
	delivered map[string]int
	accepted  int
	lines     map[*line]bool
	stopped   bool
	running   sync.WaitGroup
}

// A line is one connection at its peer's end.
type line struct {
	peer  *peer
	raw   *net.TCPConn
	conn  net.Conn // raw, or TLS over it
	in    *bufio.Reader
	muxed *muxed // HTTP/2 only
}

// An exchange is one request at its peer.
type exchange struct {
	*line
	key    string
	stream uint32 // HTTP/2 only
	req    *http.Request
}

// newPeer starts a peer. start may set its fields.
func newPeer(t testing.TB, s speech, start func(*peer)) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{
		t: t, speech: s, ln: ln, addr: ln.Addr().String(),
		delivered: make(map[string]int), lines: make(map[*line]bool),
		act: func(x *exchange) { x.respond(200, "", "ok") },
	}
	if start != nil {
		start(p)
	}
	p.running.Go(p.accept)
	t.Cleanup(p.stop)
	return p
}

func (p *peer) accept() {
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			return
		}
		l := &line{peer: p, raw: conn.(*net.TCPConn), conn: conn}
		p.mu.Lock()
		p.accepted++
		if p.stopped {
			p.mu.Unlock()
			conn.Close()
			return
		}
		p.lines[l] = true
		p.running.Go(l.serve)
		p.mu.Unlock()
	}
}

// stop ends the peer and waits for all it was doing, so that counts are final.
func (p *peer) stop() {
	p.ln.Close()
	p.mu.Lock()
	p.stopped = true
	for l := range p.lines {
		l.raw.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *peer) deliveries(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delivered[key]
}

// finallyDelivered stops the peer, so that nothing is on its way any more, and
// holds that key was delivered so many times.
func (p *peer) finallyDelivered(t *testing.T, key string, want int) {
	t.Helper()
	p.stop()
	if n := p.deliveries(key); n != want {
		t.Errorf("delivered %d times, want %d", n, want)
	}
}

func (p *peer) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// each calls f for every open connection.
func (p *peer) each(f func(*line)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.lines {
		f(l)
	}
}

func (l *line) serve() {
	p := l.peer
	defer func() {
		l.raw.Close()
		p.mu.Lock()
		delete(p.lines, l)
		p.mu.Unlock()
	}()
	if p.greet != nil {
		p.greet(l.raw)
	}
	if p.speech.tls {
		protocol := "http/1.1"
		if p.speech.mux {
			protocol = "h2"
		}
		c := tls.Server(l.raw, &tls.Config{Certificates: []tls.Certificate{identity().cert}, NextProtos: []string{protocol}})
		if c.Handshake() != nil {
			return
		}
		p.mu.Lock()
		l.conn = c
		p.mu.Unlock()
	}
	l.in = bufio.NewReader(l.conn)
	if p.speech.mux {
		l.serveMux()
		return
	}
	for {
		req, err := http.ReadRequest(l.in)
		if err != nil {
			return
		}
		x := &exchange{line: l, req: req, key: keyOf(req.Header)}
		if !x.warm() && p.head != nil && !p.head(x) {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		x.complete()
	}
}

func keyOf(h http.Header) string { return h.Get("Idempotency-Key") + h.Get("X-Idempotency-Key") }

func (x *exchange) warm() bool { return strings.HasPrefix(x.key, "warm") }

// complete is called once a request was received to its last byte.
func (x *exchange) complete() {
	x.peer.mu.Lock()
	x.peer.delivered[x.key]++
	x.peer.mu.Unlock()
	if x.warm() {
		x.respond(200, "", "warm")
	} else {
		x.peer.act(x)
	}
}

// respond sends a whole answer. head is further header lines, each ended by "\n".
func (x *exchange) respond(status int, head, body string) {
	if x.muxed != nil {
		x.muxed.respond(x.stream, status, head, body)
		return
	}
	fmt.Fprintf(x.conn, "HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n\r\n%s",
		status, http.StatusText(status), strings.ReplaceAll(head, "\n", "\r\n"), len(body), body)
}

// respondHalf sends an answer that is cut short.
func (x *exchange) respondHalf() {
	if x.muxed != nil {
		x.muxed.headers(x.stream, 200, "Content-Length: 100\n", false)
		x.muxed.data(x.stream, "half", false)
		return
	}
	io.WriteString(x.conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
}

func (l *line) close() { l.conn.Close() }

// reset makes the peer's kernel send RST instead of FIN.
func (l *line) reset() {
	l.raw.SetLinger(0)
	l.raw.Close()
}

// halfClose ends the peer's side, and leaves it reading.
func (l *line) halfClose() {
	if c, ok := l.conn.(*tls.Conn); ok {
		c.CloseWrite()
	}
	l.raw.CloseWrite()
}

// eventually waits for a change that no event announces.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// occurs waits for an event.
func occurs(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("never happened: %s", what)
	}
}

// request makes a keyed POST to the peer. A body of "" is none.
func (p *peer) request(key, body string) *http.Request {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body) // sets GetBody, which RoundTrip has to clear
	}
	req, err := http.NewRequest("POST", p.speech.scheme()+"://"+p.addr+"/v1/charges", r)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	return req
}

// connect takes a connection or ends the test.
func connect(t testing.TB, pool *Pool, p *peer) *Conn {
	t.Helper()
	conn, err := pool.Connect(t.Context(), p.speech.scheme(), p.addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// exchangeOn sends a request, reads the whole answer and returns its status and body.
func exchangeOn(t testing.TB, conn *Conn, req *http.Request) (int, string) {
	t.Helper()
	resp, err := conn.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, readAll(t, resp)
}

func readAll(t testing.TB, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// warm leaves n idle connections to the peer in the pool.
func warm(t testing.TB, pool *Pool, p *peer, n int) {
	t.Helper()
	conns := make([]*Conn, n)
	for i := range conns {
		conns[i] = connect(t, pool, p)
	}
	for _, c := range conns {
		exchangeOn(t, c, p.request("warm", "x"))
	}
}

// sendError checks that err is what RoundTrip returns.
func sendError(t testing.TB, err error) *SendError {
	t.Helper()
	e, ok := errors.AsType[*SendError](err)
	if !ok {
		t.Fatalf("got %T %v, want a *SendError", err, err)
	}
	return e
}

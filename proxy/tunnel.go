package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/policy"
	"fencepost/proxy/internal/front"
)

// connect serves CONNECT (RFC 9110, section 9.3.6). It never reaches a transport.
func (e *Egress) connect(w http.ResponseWriter, r *http.Request, rules *loaded, scope string) {
	p := e.p
	to, err := policy.ParseDestination(r.RequestURI, 0)
	if r.ProtoMajor != 1 || err != nil {
		why := "CONNECT needs HTTP/1.1"
		if err != nil {
			why = err.Error()
		}
		writeProblem(w, &problem{code: codeMalformed, retry: retryNever, detail: "CONNECT to " + strconv.Quote(r.RequestURI) + " is refused: " + why + "."})
		return
	}
	if !rules.Egress.PortAllowed(to.Port) || p.draining() {
		why := e.refusal(rules, to)
		if p.draining() {
			why = &problem{code: codeShuttingDown, detail: "Nothing was sent."}
		}
		p.refusedEgress(scope, to, why)
		writeProblem(w, why)
		return
	}
	if !e.reserve() {
		prob := &problem{code: codeBusy, detail: "There are " + strconv.Itoa(e.options.MaxTunnels) + " tunnels, as many as egress.max_tunnels allows. Nothing was sent."}
		p.refusedEgress(scope, to, prob)
		writeProblem(w, prob)
		return
	}
	opened := false
	defer func() {
		if !opened {
			e.letGo(nil)
		}
	}()
	in := &passage{scope: scope, to: to, refusal: e.refusal(rules, to), auth: r.Header["Proxy-Authorization"]}
	way, _ := rules.Egress.Decide(to)
	if in.refusal != nil {
		p.refusedEgress(scope, to, in.refusal)
	}

	var far net.Conn
	if in.refusal == nil && way == policy.PassTunnelled {
		ctx, cancel := context.WithTimeout(r.Context(), p.cfg.Upstream.DialTimeout)
		far, err = rules.plainEgress.dial(ctx, "tcp", net.JoinHostPort(to.Name, strconv.Itoa(int(to.Port))))
		cancel()
		if err != nil {
			prob := p.unreached(to.Name, err)
			p.refusedEgress(scope, to, prob)
			if prob.code != codeForbidden {
				writeProblem(w, prob)
				return
			}
			// Not allowed after all, because of where the name leads: said inside the
			// tunnel like every other refusal, since clients do not show what a CONNECT
			// was answered with.
			in.refusal, way = prob, policy.PassRefused
		}
	}
	near, first, err := e.hijack(w, r)
	if err != nil {
		if far != nil {
			far.Close()
		}
		p.log.Warn("a tunnel could not be opened", "host", to.Name, "scope", scope, "error", err)
		return
	}
	opened = true
	p.metrics.egress.WithLabelValues(way.String()).Inc()
	if far != nil {
		p.tally.tunnelled(to.Name)
		go func() {
			defer e.letGo(near)
			e.join(near, far, first, &opening{rules: rules, to: to})
		}()
		return
	}
	go func() {
		defer e.letGo(near)
		e.intercept(near, first, in)
	}()
}

// hijack takes a client's connection over and tells the client to go on. It
// returns the bare connection and what the client has sent already.
func (e *Egress) hijack(w http.ResponseWriter, r *http.Request) (net.Conn, []byte, error) {
	front.Switching(r)
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	near := front.Raw(c)
	first, _ := rw.Reader.Peek(rw.Reader.Buffered())
	_ = near.SetDeadline(time.Now().Add(e.options.Server.HeaderTimeout))
	if _, err = io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil && !e.hold(near) {
		err = errStopping
	}
	if err != nil {
		near.Close()
		return nil, nil, err
	}
	_ = near.SetDeadline(time.Time{})
	return near, first, nil
}

var errStopping = errors.New("the proxy is stopping")

// join carries bytes both ways until both sides have ended or nothing went through
// for too long.
func (e *Egress) join(near, far net.Conn, first []byte, o *opening) {
	defer near.Close()
	defer far.Close()
	if len(first) > 0 {
		_ = far.SetWriteDeadline(time.Now().Add(e.options.TunnelIdle))
		first, err := o.pass(first)
		if err == nil {
			_, err = far.Write(first)
		}
		if err != nil {
			e.ended(o, err)
			return
		}
	}
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	var both sync.WaitGroup
	both.Go(func() { e.ended(o, e.p.carry(far, near, e.options.TunnelIdle, &last, o.pass)) })
	both.Go(func() { _ = e.p.carry(near, far, e.options.TunnelIdle, &last, nil) })
	both.Wait()
}

// ended says why a tunnel was ended, where a person needs to know.
func (e *Egress) ended(o *opening, err error) {
	if err == errFronted || err == errEndless {
		e.p.log.Warn("a tunnel was ended", "host", o.to.Name, "port", o.to.Port, "reason", err.Error())
		e.p.metrics.egress.WithLabelValues("refused").Inc()
	}
}

// intercept ends the client's TLS here and hands its requests to the inner server.
func (e *Egress) intercept(near net.Conn, first []byte, in *passage) {
	_ = near.SetReadDeadline(time.Now().Add(e.options.Server.HeaderTimeout))
	tagged := &front.Tagged{Conn: near, First: first, Tag: in}
	if len(first) == 0 {
		one := make([]byte, 1)
		if _, err := io.ReadFull(near, one); err != nil {
			near.Close()
			return
		}
		tagged.First = one
	}
	const handshake = 0x16 // RFC 8446, section 5.1
	if tagged.First[0] != handshake {
		// HTTP in a tunnel, as some clients do for ws://. It is looked at all the same.
		in.scheme = "http"
		_ = near.SetReadDeadline(time.Time{})
		e.queue.PushPlain(tagged)
		return
	}
	in.scheme = "https"
	ctx, cancel := context.WithTimeout(context.Background(), e.options.Server.HeaderTimeout)
	defer cancel()
	s := tls.Server(tagged, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
			if name == "" {
				name = in.to.Name
			}
			if name != in.to.Name {
				in.name = name
			}
			leaf, err := e.options.Authority.Leaf(hello.Context(), name)
			in.unsigned = err
			return leaf, err
		},
	})
	if err := s.HandshakeContext(ctx); err != nil {
		e.p.handshakeFailed(in, err)
		near.Close()
		return
	}
	_ = near.SetDeadline(time.Time{})
	e.queue.PushTLS(s)
}

// handshakeFailed says what a person needs to know: mostly that a client does not
// trust the authority.
func (p *Proxy) handshakeFailed(in *passage, err error) {
	p.metrics.egress.WithLabelValues("handshake_failed").Inc()
	if in.unsigned != nil {
		p.log.Error("the authority does not sign for an intercepted host, so its clients cannot be served", "host", in.to.Name, "scope", in.scope, "error", in.unsigned)
		p.tally.unsigned(in.to.Name)
		return
	}
	hint := ""
	if _, alert := errors.AsType[tls.AlertError](err); alert || strings.Contains(err.Error(), "remote error: tls:") {
		hint = "the client does not trust Fencepost's authority, or pins its certificate: see `fencepost ca env`, or tunnel this host"
	}
	p.log.Warn("an intercepted client did not finish TLS", "host", in.to.Name, "scope", in.scope, "error", err, "hint", hint)
	p.tally.untrusting(in.to.Name)
}

// unreached is the answer to a destination that could not be connected to.
func (p *Proxy) unreached(host string, err error) *problem {
	if f, ok := errors.AsType[*forbiddenError](err); ok {
		return f.problem(host)
	}
	return &problem{code: codeUnreachable, detail: "No connection to " + strconv.Quote(host) + ": " + err.Error() + ".", short: "no connection"}
}

package proxy

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// identity is who asks for what, under which rules.
type identity struct {
	route    *policy.Route
	way      *way
	origin   policy.Origin
	scope    string
	key      string
	lease    *keystore.LeaseRef
	governed bool
	// asSent says that the target goes out as the client spelled it: only what is
	// safe to repeat does.
	asSent bool
	// derive says that the key is made of the request once its body was read.
	derive bool
}

// identify routes a request and says who sent it and under which key. Nothing
// of the ledger is read before the caller is known.
func (p *Proxy) identify(r *http.Request, rules *loaded) (identity, *problem) {
	var id identity
	if r.Method == http.MethodConnect {
		// CONNECT must never reach a transport: it would poison its connections.
		return id, &problem{code: codeMethodNotAllowed, detail: "Fencepost is a reverse proxy here: set your client's base URL to it, not HTTP_PROXY or HTTPS_PROXY."}
	}
	scope, prob := callerScope(r, &rules.Rules)
	if prob != nil {
		return id, prob
	}
	id.scope, id.origin = scope, policy.Origin{Host: r.Host}
	path, prob := requestPath(r)
	if prob != nil {
		return id, prob
	}
	route, ok := rules.Routes.Match(r.Host, path)
	if !ok {
		return id, &problem{code: codeNoRoute, detail: "No route matches host " + strconv.Quote(r.Host) + " and path " + strconv.Quote(r.URL.Path) + ". See routes in the configuration."}
	}
	id.route, id.way = route, rules.ways[route]
	return id, id.read(r)
}

// requestPath is the path of a request as it was sent, or why the target is
// refused.
func requestPath(r *http.Request) (string, *problem) {
	path := r.URL.EscapedPath()
	err := policy.CheckTarget(path, r.URL.RawQuery)
	if r.URL.Opaque != "" {
		err = errors.New("it is no path")
	}
	if err != nil {
		return path, &problem{code: codeMalformed, retry: retryNever, detail: "The request target is refused: " + err.Error() + "."}
	}
	return path, nil
}

// read finds the key and the lease of a request whose route is known.
func (id *identity) read(r *http.Request) *problem {
	route := id.route
	field := canonical(route.Key.Header)
	values := r.Header[field]
	method := r.Method
	if policy.SafeMethod(method) && !safe(r) {
		method = policy.Override(r.Header)
	}
	if !route.Governed(method, len(values) > 0) {
		return nil
	}
	if policy.HasKeyAlias(r.Header, route.Key.Header) {
		return &problem{code: codeKeyInvalid, detail: "The request has a field that is " + route.Key.Header + " with an underscore. Send " + route.Key.Header + " and nothing like it."}
	}
	if policy.NamedInConnection(r.Header["Connection"], route.Key.Header) {
		return &problem{code: codeKeyInvalid, detail: "The Connection field names " + route.Key.Header + ", so the next hop would drop it."}
	}
	key, err := policy.ParseKey(values)
	switch {
	case errors.Is(err, policy.ErrKeyMissing):
		switch route.Key.Missing {
		case policy.MissingPass:
			return nil
		case policy.MissingDerive:
			id.derive = true
		default:
			return &problem{code: codeKeyRequired, detail: r.Method + " requests on route " + strconv.Quote(route.Name) + " need the field " + route.Key.Header + " with a new key for each new effect. Nothing was sent."}
		}
	case err != nil:
		return &problem{code: codeKeyInvalid, detail: "The " + err.Error() + "."}
	}
	lease, prob := leaseOf(r)
	if prob != nil {
		return prob
	}
	if lease == nil && route.Lease.Required {
		return &problem{code: codeLeaseRequired, detail: "Requests on route " + strconv.Quote(route.Name) + " must be made under a lease: send " + headerLease + `: "run";token=N. Nothing was sent.`}
	}
	id.key, id.lease, id.governed = key, lease, true
	return nil
}

// safe reports whether a request asks for no change: neither by its method nor by a
// field that stands in for it.
func safe(r *http.Request) bool {
	o := policy.Override(r.Header)
	return policy.SafeMethod(r.Method) && (o == "" || policy.SafeMethod(o))
}

// callerScope identifies the caller by the Fencepost-Authorization field.
func callerScope(r *http.Request, rules *Rules) (string, *problem) {
	if rules.Callers == nil {
		return policy.ScopeDefault, nil
	}
	token, err := policy.BearerToken(r.Header[headerAuthorization])
	if err == nil {
		if scope, ok := rules.Callers.Identify(token); ok {
			return scope, nil
		}
		err = errors.New("the token is not a known caller's")
	}
	return "", &problem{code: codeCallerUnknown, detail: "Send Fencepost-Authorization: Bearer <token> with a configured caller's token: " + err.Error() + ". (The fencepost command reads it from FENCEPOST_TOKEN.)"}
}

// leaseOf reads the Fencepost-Lease field.
func leaseOf(r *http.Request) (*keystore.LeaseRef, *problem) {
	values := r.Header[headerLease]
	if len(values) == 0 {
		return nil, nil
	}
	run, token, err := policy.ParseLease(values)
	if err != nil {
		return nil, &problem{code: codeLeaseInvalid, detail: "The " + headerLease + " field " + err.Error() + "."}
	}
	return &keystore.LeaseRef{Run: run, Token: token}, nil
}

// waitFor is how long a duplicate may wait for an in-flight result: what it
// prefers (RFC 7240, section 4.3), else what the route says, within the limit.
func (p *Proxy) waitFor(r *http.Request, route *policy.Route) time.Duration {
	d := route.Wait
	for _, v := range r.Header["Prefer"] {
		for part := range strings.SplitSeq(v, ",") {
			name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
			if !ok || !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			if n, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`)); err == nil && n >= 0 {
				d = time.Duration(min(n, 86400)) * time.Second
			}
		}
	}
	return min(d, p.cfg.MaxWait)
}

// govern carries a governed request through the exchange.
func (p *Proxy) govern(w http.ResponseWriter, r *http.Request, id identity) {
	x := &exchange{
		p: p, route: id.route, way: id.way, req: r, lease: id.lease, wait: p.waitFor(r, id.route),
		id:     keystore.ID{Scope: id.scope, Key: id.key},
		target: id.route.Target(id.origin, r.URL.EscapedPath(), r.URL.RawQuery),
		line:   &line{start: time.Now(), scope: id.scope, key: id.key, route: id.route.Name, method: r.Method, host: r.Host, path: r.URL.Path},
	}
	rc := http.NewResponseController(w)
	defer func() {
		// The answer leaves within a bound of its own: a caller that stops reading
		// must not hold this process. The next request on the connection is free of it.
		_ = rc.SetWriteDeadline(time.Now().Add(p.cfg.BodyTimeout))
		_ = rc.Flush()
		_ = rc.SetWriteDeadline(time.Time{})
	}()
	defer func() {
		p.metrics.governed(x.line)
		p.tally.governed(x.line, x.id)
		x.line.write(p.log)
	}()
	if p.draining() {
		x.refuse(w, x.shuttingDown())
		return
	}
	body, err := p.spool(w, r, id.route.Limits.Request, p.finger.NewBody())
	if err != nil {
		x.refuse(w, x.bodyProblem(err))
		return
	}
	defer func() {
		if !x.detached {
			body.close()
		}
	}()
	x.body, x.trailer = body, trailerOf(r, canonical(id.route.Key.Header))
	if x.fingerprint, err = p.finger.Sum(id.route, x.asked(), body.hashed()); err != nil {
		x.refuse(w, x.bodyProblem(&spoolError{err}))
		return
	}
	if id.derive {
		run := ""
		if id.lease != nil {
			run = id.lease.Run
		}
		x.derived = true
		x.id.Key = policy.DeriveKey(id.scope, run, x.fingerprint)
		x.line.key = x.id.Key
	}
	// From here on the effect does not depend on the caller's patience.
	x.run(context.WithoutCancel(r.Context()), w)
}

func (x *exchange) shuttingDown() *problem {
	return &problem{code: codeShuttingDown, id: x.id, detail: "Nothing was sent. Send the same request with the same key again; another proxy, or this one restarted, will take it."}
}

func (x *exchange) refuse(w http.ResponseWriter, p *problem) {
	x.line.decision = "refuse"
	(&answer{problem: p}).write(x, w)
}

func (x *exchange) bodyProblem(err error) *problem {
	var mine *spoolError
	switch {
	case errors.Is(err, errTooLarge):
		return &problem{code: codeTooLarge, id: x.id, detail: "The body is larger than the " + strconv.FormatInt(x.route.Limits.Request, 10) + " bytes that route " + strconv.Quote(x.route.Name) + " allows. Nothing was sent."}
	case errors.As(err, &mine):
		x.p.log.Error("cannot spool a request body", "error", err)
		return &problem{code: codeInternal, status: http.StatusServiceUnavailable, retry: retrySameKey, after: time.Second, id: x.id, detail: "This proxy could not hold the request body. Nothing was sent. Send the same request with the same key again."}
	}
	return &problem{code: codeMalformed, id: x.id, detail: "The request body could not be read to its end: " + err.Error() + ". Nothing was sent."}
}

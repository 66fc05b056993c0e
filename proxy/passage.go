package proxy

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"fencepost/policy"
	"fencepost/proxy/internal/front"
)

// EgressPath is where an egress proxy says which one it is, in JSON:
// {"identity": "…", "api": "host:port"}.
const EgressPath = apiPrefix + "v1/egress"

// serveOuter serves what clients ask the proxy itself for.
func (e *Egress) serveOuter(w http.ResponseWriter, r *http.Request) {
	p := e.p
	if r.Method != http.MethodConnect && !r.URL.IsAbs() {
		if r.URL.Path == EgressPath && r.Method == http.MethodGet {
			writeJSON(w, http.StatusOK, struct {
				Identity string `json:"identity"`
				API      string `json:"api"`
			}{e.options.Identity, e.options.API})
			return
		}
		if strings.HasPrefix(r.URL.Path, apiPrefix) {
			p.api.ServeHTTP(w, r)
			return
		}
		writeProblem(w, &problem{code: codeNoRoute, detail: "This is Fencepost's egress proxy: set HTTPS_PROXY and HTTP_PROXY to it. It serves nothing of its own but the API under " + apiPrefix + "."})
		return
	}
	rules := p.rules.Load()
	scope, prob := proxyScope(r.Header["Proxy-Authorization"], &rules.Rules)
	if prob != nil {
		w.Header().Set("Proxy-Authenticate", `Basic realm="fencepost"`)
		writeProblem(w, prob)
		return
	}
	if looped(r, p.cfg.Instance) {
		writeProblem(w, &problem{code: codeLoop, detail: "The request came back to this proxy: a parent proxy leads to it again. Nothing was sent."})
		return
	}
	if r.Method == http.MethodConnect {
		e.connect(w, r, rules, scope)
		return
	}
	if r.URL.Scheme != "http" || r.URL.User != nil {
		writeProblem(w, &problem{code: codeMalformed, retry: retryNever, detail: "Only http:// URLs are asked for like this, and without credentials in them; use CONNECT for https."})
		return
	}
	to, err := policy.ParseDestination(r.URL.Host, 80)
	if err != nil {
		writeProblem(w, &problem{code: codeMalformed, retry: retryNever, detail: "The host " + strconv.Quote(r.URL.Host) + " is refused: " + err.Error() + "."})
		return
	}
	if why := e.refusal(rules, to); why != nil {
		p.refusedEgress(scope, to, why)
		refuse(w, r, why)
		return
	}
	e.request(w, r, rules, &passage{scope: scope, to: to, scheme: "http"})
}

// refusal is the answer to a wish to reach what is not allowed, or nil.
func (e *Egress) refusal(rules *loaded, to policy.Destination) *problem {
	if !rules.Egress.PortAllowed(to.Port) {
		return &problem{code: codeForbidden, detail: "Port " + strconv.Itoa(int(to.Port)) + " is not one that may be reached. See egress.ports in Fencepost's configuration. Nothing was sent.", short: "port not in egress.ports"}
	}
	way, reported := rules.Egress.Decide(to)
	if way == policy.PassRefused {
		return &problem{code: codeForbidden, detail: "The host " + strconv.Quote(to.Name) + " is not one that may be reached. See egress.allow and routes in Fencepost's configuration. Nothing was sent.", short: "not in egress.allow"}
	}
	if reported {
		e.p.log.Warn("a host that is not allowed was let through, because egress.mode is report", "host", to.Name, "port", to.Port)
		e.p.tally.reported(to.Name)
	}
	return nil
}

// passage is what is known of the connection that a request came through.
type passage struct {
	scope  string
	to     policy.Destination
	scheme string
	// refusal, when not nil, is the answer to every request.
	refusal *problem
	// name is what TLS asked for, where that is not the destination.
	name string
	// auth is how the client of a tunnel said who it is.
	auth []string
	// unsigned is why the authority did not sign for it, where it did not.
	unsigned error
}

// serveInner serves requests that came through a tunnel.
func (e *Egress) serveInner(w http.ResponseWriter, r *http.Request) {
	in, ok := front.Tag(r).(*passage)
	if !ok {
		writeProblem(w, &problem{code: codeInternal, retry: retrySameKey, detail: "It is not known where this connection leads. Nothing was sent."})
		return
	}
	switch {
	case r.Method == http.MethodConnect:
		writeProblem(w, &problem{code: codeMethodNotAllowed, detail: "There is no tunnel within a tunnel."})
		return
	case in.refusal != nil:
		e.p.tally.told(in.to.Name)
		refuse(w, r, in.refusal)
		return
	case in.name != "":
		writeProblem(w, &problem{code: codeMisdirected, detail: "TLS asked for " + strconv.Quote(in.name) + " on a connection to " + strconv.Quote(in.to.Name) + ". Nothing was sent."})
		return
	}
	standard := uint16(443)
	if in.scheme == "http" {
		standard = 80
	}
	asked, err := policy.ParseDestination(r.Host, standard)
	if err != nil || asked.Name != in.to.Name || asked.Port != in.to.Port && asked.Port != standard {
		writeProblem(w, &problem{code: codeMisdirected, detail: "The request is for " + strconv.Quote(r.Host) + " on a connection to " + strconv.Quote(in.to.Host(in.scheme)) + ". Nothing was sent."})
		return
	}
	// The rules may have changed since the connection was made.
	rules := e.p.rules.Load()
	if scope, prob := proxyScope(in.auth, &rules.Rules); prob != nil || scope != in.scope {
		w.Header().Set("Connection", "close")
		writeProblem(w, &problem{code: codeCallerUnknown, detail: "The token that this tunnel was opened with is not that caller's any more. Nothing was sent."})
		return
	}
	if why := e.refusal(rules, in.to); why != nil {
		e.p.refusedEgress(in.scope, in.to, why)
		refuse(w, r, why)
		return
	}
	e.request(w, r, rules, in)
}

// request governs a request to an allowed destination, or passes it on.
func (e *Egress) request(w http.ResponseWriter, r *http.Request, rules *loaded, in *passage) {
	id, prob := e.p.identifyEgress(r, rules, in)
	if prob != nil {
		e.p.tally.refused(prob.code)
	}
	e.p.serve(w, r, id, prob)
}

// identifyEgress is identify for what came through the egress proxy.
func (p *Proxy) identifyEgress(r *http.Request, rules *loaded, in *passage) (identity, *problem) {
	id := identity{scope: in.scope, origin: policy.Origin{Scheme: in.scheme, Host: in.to.Host(in.scheme)}, route: plainEgress, way: rules.plainEgress}
	path, prob := requestPath(r)
	if prob != nil {
		if safe(r) && r.URL.Opaque == "" {
			// No rule is got round by what changes nothing.
			id.asSent = true
			return id, nil
		}
		return id, prob
	}
	route, ok := rules.EgressRoutes.Match(in.to.Name, path)
	if !ok {
		if !safe(r) && rules.EgressRoutes.Disputed(in.to.Name, path) {
			return id, &problem{code: codeNoRoute, detail: "The path " + strconv.Quote(r.URL.Path) + " can be read in two ways that fall under different routes."}
		}
		return id, nil
	}
	id.route, id.way = route, rules.ways[route]
	return id, id.read(r)
}

// plainEgress is the route of what no route governs.
var plainEgress = func() *policy.Route {
	t, err := policy.NewTable([]policy.Route{{Name: "plain", Egress: true}})
	if err != nil {
		panic(err) // unreachable: it has nothing that could be wrong
	}
	return t.Routes()[0]
}()

// proxyScope identifies the caller by the values of Proxy-Authorization (RFC 9110,
// section 11.7.2): the token as a bearer token, or as the password of Basic, with
// any user name.
func proxyScope(values []string, rules *Rules) (string, *problem) {
	if rules.Callers == nil {
		return policy.ScopeDefault, nil
	}
	why := "Give the client a configured caller's token: http://caller:TOKEN@host:port as the proxy's URL."
	if len(values) == 1 {
		scheme, _, _ := strings.Cut(values[0], " ")
		token := ""
		if strings.EqualFold(scheme, "Basic") {
			as := http.Request{Header: http.Header{"Authorization": values}}
			_, token, _ = as.BasicAuth()
		} else if t, err := policy.BearerToken(values); err == nil {
			token = t
		}
		if scope, ok := rules.Callers.Identify(token); ok {
			return scope, nil
		}
		why = "The token is not a known caller's. " + why
	}
	return "", &problem{code: codeCallerUnknown, status: http.StatusProxyAuthRequired, detail: why}
}

// looped reports whether a request came through this proxy before: it names itself
// in Via where it asks a parent proxy.
func looped(r *http.Request, instance string) bool {
	for _, v := range r.Header["Via"] {
		if strings.Contains(v, "fencepost-"+instance) {
			return true
		}
	}
	return false
}

// refusedEgress notes a wish that was not granted.
func (p *Proxy) refusedEgress(scope string, to policy.Destination, why *problem) {
	p.log.Warn("egress refused", "scope", scope, "host", to.Name, "port", to.Port, "code", why.code, "reason", why.detail)
	p.metrics.egress.WithLabelValues("refused").Inc()
	host := to.Host("https")
	if to.Port == 80 {
		host = to.Name
	}
	p.tally.refusedHost(host, cmp.Or(why.short, string(why.code)))
}

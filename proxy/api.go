package proxy

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"fencepost/keystore"
	"fencepost/policy"
)

// scopeKey is the context key under which the API finds the caller's scope.
type scopeKey struct{}

// newAPI is the API on the reverse listener: lookups and leases, for the caller's own scope.
func (p *Proxy) newAPI() http.Handler {
	r := chi.NewRouter()
	r.Use(escapedRoutes)
	r.Use(p.authenticate)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, &problem{code: codeNoRoute, detail: "There is nothing at " + strconv.Quote(r.URL.Path) + ". Operations are looked up at " + apiPrefix + "v1/operations/{key}."})
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, &problem{code: codeMethodNotAllowed, detail: "Operations are read with GET: a lookup never sends and never creates. Leases take POST, PUT, DELETE and GET."})
	})
	r.Get(apiPrefix+"v1/operations/{key}", p.lookup)
	r.Get(apiPrefix+"v1/operations/{key}/response", p.lookupResponse)
	r.Route(apiPrefix+"v1/leases/{run}", func(r chi.Router) {
		r.Post("/", p.acquireLease)
		r.Put("/", p.renewLease)
		r.Delete("/", p.releaseLease)
		r.Get("/", p.showLease)
	})
	return r
}

// escapedRoutes routes on the path as it was sent: a key may hold an escaped
// slash.
func escapedRoutes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chi.RouteContext(r.Context()).RoutePath = r.URL.EscapedPath()
		next.ServeHTTP(w, r)
	})
}

// authenticate puts the caller's scope into the request's context.
func (p *Proxy) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope, prob := callerScope(r, &p.rules.Load().Rules)
		if prob != nil {
			writeProblem(w, prob)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), scopeKey{}, scope)))
	})
}

// pathID reads the operation's name from the URL. A key in a path is always the
// key itself, percent-encoded: no quotes are undone.
func pathID(r *http.Request) (keystore.ID, *problem) {
	scope, _ := r.Context().Value(scopeKey{}).(string)
	key, err := url.PathUnescape(chi.URLParam(r, "key"))
	if err != nil || key == "" || len(key) > policy.MaxKeyLength {
		return keystore.ID{}, &problem{code: codeKeyInvalid, detail: "The key in the path must be 1 to 255 characters, percent-encoded."}
	}
	return keystore.ID{Scope: scope, Key: key}, nil
}

// find reads an operation for a lookup, waiting for it to be settled where
// ?wait= asks for that. It never sends and never creates.
func (p *Proxy) find(r *http.Request) (keystore.Reply, *problem) {
	id, prob := pathID(r)
	if prob != nil {
		return keystore.Reply{}, prob
	}
	var wait time.Duration
	if v := r.URL.Query().Get("wait"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return keystore.Reply{}, &problem{code: codeMalformed, retry: retryNever, id: id, detail: "wait=" + strconv.Quote(v) + " is not a duration; write it like wait=30s."}
		}
		wait = min(d, p.cfg.MaxWait)
	}
	rep, err := p.ledger.get(r.Context(), id)
	if err != nil {
		p.log.Error("a lookup failed", "scope", id.Scope, "key", id.Key, "error", err)
		return rep, &problem{code: codeLedgerUnavailable, id: id, detail: "The ledger could not be asked. Ask again."}
	}
	if wait > 0 && rep.Result == keystore.Found && !p.resting(&rep) {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		defer context.AfterFunc(p.drain, cancel)()
		if later, ok := p.waiters.until(ctx, id, p.resting); ok {
			rep = later
		}
	}
	if rep.Result != keystore.Found {
		return rep, &problem{code: codeNoOperation, id: id, detail: "No operation with this key is known in this caller's scope. Nothing was sent under it, unless its record has expired."}
	}
	return rep, nil
}

// resting reports that waiting longer for an operation is of no use: it is
// settled, or nobody is at it.
func (p *Proxy) resting(rep *keystore.Reply) bool {
	if rep.Result != keystore.Found {
		return true
	}
	v := rep.Record.Reads(rep.Now, p.ledger.gone)
	return v.State.Settled() || (v.State == keystore.Reserved && v.Free)
}

// lookup answers with the state document of an operation.
func (p *Proxy) lookup(w http.ResponseWriter, r *http.Request) {
	rep, prob := p.find(r)
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	doc := p.describe(&rep)
	h := w.Header()
	h.Set(headerKey, policy.FormatKey(rep.Record.Key))
	h.Set(headerOperation, rep.Record.Operation)
	h.Set(headerState, doc.State.String())
	writeJSON(w, http.StatusOK, doc)
}

// lookupResponse answers with the recorded response itself, or says why there
// is none.
func (p *Proxy) lookupResponse(w http.ResponseWriter, r *http.Request) {
	rep, prob := p.find(r)
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	x := &exchange{p: p, id: rep.Record.ID, line: &line{}}
	c := keystore.Decide(&rep.Record, rep.Record.Fingerprint, rep.Now, p.ledger.gone)
	if c == keystore.ClaimTakeOver {
		writeProblem(w, &problem{code: codeNoOperation, id: rep.Record.ID, record: &rep.Record, state: keystore.Reserved.String(), detail: "Nothing was sent under this key, so there is no response. The same request may be sent with the same key."})
		return
	}
	x.answerClaim(c, rep).write(x, w)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := marshal(v, "  ")
	if err != nil {
		writeProblem(w, &problem{code: codeInternal, retry: retrySameKey, detail: "The answer could not be written as JSON."})
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fencepost/policy"
)

// newAdmin is the admin listener: health for machines, metrics for both, and
// for operators what is not settled (operations.go).
func (p *Proxy) newAdmin() http.Handler {
	r := chi.NewRouter()
	r.Use(escapedRoutes)
	r.Use(p.guardBrowser)
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "instance": p.cfg.Instance})
	})
	r.Get("/readyz", p.readyz)
	r.Group(func(r chi.Router) {
		r.Use(p.adminToken)
		r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{ErrorLog: p.errorLog}))
		r.Get("/v1/operations", p.listOperations)
		r.Get("/v1/operations/{scope}/{key}", p.showOperation)
		r.Get("/v1/operations/{scope}/{key}/response", p.showResponse)
		r.Post("/v1/operations/{scope}/{key}/resolve", p.resolveOperation)
		r.Post("/v1/operations/{scope}/{key}/reconcile", p.reconcileOperation)
	})
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, &problem{code: codeNoRoute, detail: "The admin listener has /healthz, /readyz, /metrics and /v1/operations, and nothing at " + strconv.Quote(r.URL.Path) + "."})
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, &problem{code: codeMethodNotAllowed, detail: "Use GET, or POST to …/resolve."})
	})
	return r
}

// guardBrowser refuses what a web page could make a browser send here: a name
// that was rebound to this address, and a request from another origin.
func (p *Proxy) guardBrowser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// With a token, a request of a page that does not know it is refused anyway,
		// and the name may be anything.
		if p.cfg.AdminToken == "" && !loopbackName(r.Host) {
			writeProblem(w, &problem{code: codeForbidden, detail: "The admin listener answers to loopback names only unless admin.token is set."})
			return
		}
		if o := r.Header.Get("Origin"); o != "" {
			if u, err := url.Parse(o); err != nil || u.Host != r.Host {
				writeProblem(w, &problem{code: codeForbidden, detail: "Requests from other origins are refused."})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func loopbackName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// adminToken lets only who knows the token pass, where one is set.
func (p *Proxy) adminToken(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(p.cfg.AdminToken))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.cfg.AdminToken != "" {
			token, err := policy.BearerToken(r.Header["Authorization"])
			got := sha256.Sum256([]byte(token))
			if err != nil || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				writeProblem(w, &problem{code: codeCallerUnknown, detail: "Send Authorization: Bearer <token> with the token of admin.token. (fencepost ops reads it from FENCEPOST_ADMIN_TOKEN or --config FILE.)"})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// readyTimeout bounds the ledger's answer to a readiness probe.
const readyTimeout = 2 * time.Second

// readyz says whether new effects may begin here: not draining, room for their
// outcomes, and a ledger that answers and keeps the promise.
func (p *Proxy) readyz(w http.ResponseWriter, r *http.Request) {
	var why []string
	if p.leaving.Load() {
		why = append(why, "draining")
	}
	if p.backlog.full() {
		why = append(why, errBacklogFull.Error())
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	findings, err := p.cfg.Ledger.Check(ctx)
	if err != nil {
		why = append(why, "ledger: "+err.Error())
	}
	var warnings []string
	for _, f := range findings {
		if f.Fatal {
			why = append(why, "ledger: "+f.Message)
		} else {
			warnings = append(warnings, "ledger: "+f.Message)
		}
	}
	doc := struct {
		Ready    bool     `json:"ready"`
		Why      []string `json:"why,omitempty"`
		Warnings []string `json:"warnings,omitempty"`
	}{len(why) == 0, why, warnings}
	status := http.StatusOK
	if !doc.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, doc)
}

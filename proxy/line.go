package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"fencepost/keystore"
)

// line is what the log says about one governed request. The layers fill it in
// as the request passes; it is written once, when the request is over.
type line struct {
	start  time.Time
	scope  string
	key    string
	route  string
	method string
	host   string
	path   string
	before keystore.State
	rec    keystore.Record
	// after is the state as the record reads now, where that is further along than
	// what is stored.
	after    keystore.State
	decision string
	reason   string
	code     code
	status   int
	received int
	replayed bool
	waited   time.Duration
	upstream time.Duration
	ledger   time.Duration
}

// write logs the line. It never holds the query, a header or a body: those may
// carry secrets.
func (l *line) write(log *slog.Logger) {
	level := slog.LevelInfo
	switch {
	case l.code == codeInternal || l.code == codeLedgerUnavailable || l.code == codeLedgerRolledBack:
		level = slog.LevelError
	case l.reads() == keystore.Unknown || l.code == codeUnknown:
		level = slog.LevelWarn
	}
	if !log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String("scope", l.scope), slog.String("key", l.key), slog.String("operation", l.rec.Operation), slog.String("route", l.route),
		slog.String("method", l.method), slog.String("host", l.host), slog.String("path", l.path),
		slog.String("before", l.before.String()), slog.String("after", l.reads().String()),
		slog.Int("attempt", l.rec.Attempt), slog.Uint64("version", l.rec.Version),
		slog.String("decision", l.decision), slog.Int("status", l.status),
	)
	if l.reason != "" {
		attrs = append(attrs, slog.String("reason", l.reason))
	}
	if l.code != "" {
		attrs = append(attrs, slog.String("code", string(l.code)))
	}
	if l.received != 0 {
		attrs = append(attrs, slog.Int("upstream_status", l.received))
	}
	if l.waited > 0 {
		attrs = append(attrs, slog.Float64("waited_ms", ms(l.waited)))
	}
	attrs = append(attrs, slog.Float64("ledger_ms", ms(l.ledger)), slog.Float64("upstream_ms", ms(l.upstream)), slog.Float64("total_ms", ms(time.Since(l.start))))
	log.LogAttrs(context.Background(), level, "governed", attrs...)
}

// reads is the state that the request left behind, as a lookup would show it.
func (l *line) reads() keystore.State {
	if l.after != keystore.StateNone {
		return l.after
	}
	return l.rec.State
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// refused logs and counts a request that was turned away before it had an
// operation. Its key, if any, is not logged: it may be anything.
func (p *Proxy) refused(r *http.Request, id identity, prob *problem) {
	p.metrics.answers.WithLabelValues(string(prob.code), keystore.StateNone.String()).Inc()
	route := ""
	if id.route != nil {
		route = id.route.Name
	}
	p.log.LogAttrs(context.Background(), slog.LevelInfo, "refused",
		slog.String("code", string(prob.code)), slog.Int("status", prob.resolved().status), slog.String("scope", id.scope), slog.String("route", route),
		slog.String("method", r.Method), slog.String("host", r.Host), slog.String("path", r.URL.Path), slog.String("remote", r.RemoteAddr), slog.String("reason", prob.detail))
}

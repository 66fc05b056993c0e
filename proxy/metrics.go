package proxy

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"fencepost/keystore"
)

// metrics are the figures of one proxy. Whatever the hot path touches is
// resolved here, at start-up.
type metrics struct {
	registry *prometheus.Registry
	passed   prometheus.Counter
	answers  *prometheus.CounterVec
	upstream prometheus.Histogram
	ledgers  map[string]ledgerMetrics
	egress   *prometheus.CounterVec
	swept    *prometheus.CounterVec
	// ReloadOK is 1 when the last reload of the configuration succeeded.
	reloadOK prometheus.Gauge
}

type ledgerMetrics struct {
	seconds prometheus.Observer
	errors  prometheus.Counter
}

func newMetrics(p *Proxy) *metrics {
	r := prometheus.NewRegistry()
	m := &metrics{registry: r}
	m.passed = prometheus.NewCounter(prometheus.CounterOpts{Name: "fencepost_passed_total", Help: "Requests passed through without a record."})
	m.answers = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fencepost_governed_total", Help: "Governed requests by what was decided (replayed, sent, or the problem's code) and the state afterwards."}, []string{"answer", "state"})
	m.upstream = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fencepost_upstream_seconds", Help: "Time from the send to the answer's head.", Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fencepost_ledger_seconds", Help: "Time of one ledger call.", Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 2.5}}, []string{"call"})
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fencepost_ledger_errors_total", Help: "Ledger calls that failed; unsure ones may have been written."}, []string{"call"})
	m.egress = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fencepost_egress_total", Help: "What became of wishes to reach a host through the egress proxy: tunnelled, intercepted, refused, handshake_failed."}, []string{"passage"})
	m.swept = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fencepost_swept_total", Help: "Expired records reduced to a tombstone or forgotten."}, []string{"what"})
	m.reloadOK = prometheus.NewGauge(prometheus.GaugeOpts{Name: "fencepost_config_last_reload_successful", Help: "1 if the last reload of the configuration succeeded."})
	m.reloadOK.Set(1)
	m.ledgers = make(map[string]ledgerMetrics)
	for _, call := range []string{"insert", "swap", "get", "delete", "list", "lease", "swaplease"} {
		m.ledgers[call] = ledgerMetrics{seconds.WithLabelValues(call), failed.WithLabelValues(call)}
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	r.MustRegister(m.passed, m.egress, m.answers, m.upstream, seconds, failed, m.swept, m.reloadOK,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("fencepost_in_flight", "Governed requests under way.", func() float64 { return float64(p.inFlight.Load()) }),
		gauge("fencepost_waiting", "Duplicates and lookups that wait for a result.", func() float64 { return float64(p.waiters.len()) }),
		gauge("fencepost_pending_events", "Outcomes in memory that the ledger has not taken yet.", func() float64 { return float64(p.backlog.len()) }),
		gauge("fencepost_upstream_idle", "Idle connections to upstreams of governed requests.", func() float64 { return float64(p.ways.idle()) }),
	)
	return m
}

// authority shows how long the authority of the egress proxy lasts.
func (m *metrics) authority(a Authority) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fencepost_egress_ca_expiry_seconds", Help: "Seconds until the authority for intercepted hosts ends."},
		func() float64 { return time.Until(a.NotAfter()).Seconds() }))
}

// ledger notes one call of the store.
func (m *metrics) ledger(call string, start time.Time, err error) {
	l := m.ledgers[call]
	l.seconds.Observe(time.Since(start).Seconds())
	if err != nil && !errors.Is(err, keystore.ErrClosed) {
		l.errors.Inc()
	}
}

// governed notes a governed request that is over.
func (m *metrics) governed(l *line) {
	what := "sent"
	switch {
	case l.replayed:
		what = "replayed"
	case l.code != "":
		what = string(l.code)
	}
	m.answers.WithLabelValues(what, l.reads().String()).Inc()
	if l.upstream > 0 {
		m.upstream.Observe(l.upstream.Seconds())
	}
}

// SetReloaded tells the metrics how the last reload of the configuration went.
func (p *Proxy) SetReloaded(ok bool) {
	if ok {
		p.metrics.reloadOK.Set(1)
	} else {
		p.metrics.reloadOK.Set(0)
	}
}

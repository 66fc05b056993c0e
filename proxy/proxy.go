package proxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/policy"
)

// Proxy serves governed and plain requests, lookups, and the admin listener.
// Make one with New and end it with Shutdown.
type Proxy struct {
	cfg      Config
	log      *slog.Logger
	errorLog *log.Logger
	rules    atomic.Pointer[loaded]
	ways     *ways
	ledger   *ledger
	waiters  *waiters
	backlog  *backlog
	finger   *policy.Fingerprinter
	metrics  *metrics
	tally    *tally
	buffers  buffers
	api      http.Handler
	admin    http.Handler

	// life ends when the process must stop now: what is under way is cut off and
	// recorded as UNKNOWN.
	life context.Context
	kill context.CancelCauseFunc
	// drain ends when no new effect may begin.
	drain    context.Context
	drainNow context.CancelFunc
	leaving  atomic.Bool
	running  sync.WaitGroup
	inFlight atomic.Int64

	ownMu sync.Mutex
	own   []netip.AddrPort
}

// New makes a Proxy. It starts a sweep of expired records in the background;
// Shutdown ends it.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	life, kill := context.WithCancelCause(context.Background())
	p := &Proxy{
		cfg: cfg, log: cfg.Logger, errorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
		finger: policy.NewFingerprinter(cfg.FingerprintKey), life: life, kill: kill,
	}
	p.drain, p.drainNow = context.WithCancel(context.Background())
	p.metrics = newMetrics(p)
	p.ledger = newLedger(cfg.Ledger, cfg.Instance, p.metrics, cfg.Vault)
	p.waiters = newWaiters(p.ledger, cfg.MaxWaiters)
	p.backlog = newBacklog(p, cfg.MaxPending, cfg.MaxPendingBytes)
	p.tally = newTally()
	p.ways = newWays(cfg.Upstream, p.egressDial(cfg.Egress, cfg.Upstream.DialTimeout))
	if err := p.Reload(cfg.Rules); err != nil {
		return nil, err
	}
	p.api = p.newAPI()
	p.admin = p.newAdmin()
	// Sweeping only reclaims space: an expired record reads as expired whether or
	// not it was swept.
	p.running.Go(func() { p.periodically(cfg.SweepEvery, "the sweep of expired records", p.Sweep) })
	p.running.Go(func() { p.periodically(cfg.ReconcileEvery, "the look for what is to be reconciled", p.ReconcileDue) })
	return p, nil
}

// Reload exchanges the rules. Requests under way keep the ones they began with. An
// error means that the rules cannot be used; the old ones stay.
func (p *Proxy) Reload(r Rules) error {
	if r.Routes == nil {
		return errors.New("proxy: Rules.Routes is required")
	}
	if r.Egress != nil && r.EgressRoutes == nil {
		return errors.New("proxy: Rules.EgressRoutes is required where there is an Egress")
	}
	l, err := p.ways.load(r)
	if err != nil {
		return err
	}
	p.rules.Store(l)
	return nil
}

// ServeHTTP serves the reverse listener: proxied requests, and the lookup API.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, apiPrefix) {
		p.api.ServeHTTP(w, r)
		return
	}
	rules := p.rules.Load()
	id, prob := p.identify(r, rules)
	p.serve(w, r, id, prob)
}

// serve governs a request, passes it on, or refuses it, by what was identified.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, id identity, prob *problem) {
	switch {
	case prob != nil:
		p.refused(r, id, prob)
		writeProblem(w, prob)
	case !id.governed:
		p.metrics.passed.Inc()
		p.pass(w, r, id)
	default:
		p.govern(w, r, id)
	}
}

// InFlight is how many effects are under way.
func (p *Proxy) InFlight() int { return int(p.inFlight.Load()) }

// Admin serves the admin listener: /healthz, /readyz and /metrics.
func (p *Proxy) Admin() http.Handler { return p.admin }

// NotReady makes /readyz fail, so that a balancer looks elsewhere. Requests are
// still served.
func (p *Proxy) NotReady() { p.leaving.Store(true) }

// draining reports whether no new effect may begin.
func (p *Proxy) draining() bool { return p.drain.Err() != nil }

// killGrace is how long what was cut off may take to record its doubt.
const killGrace = 5 * time.Second

// Shutdown lets no new effect begin (governed requests get 503) and waits for
// the effects under way. When ctx ends first, what is left is cut off and
// recorded as UNKNOWN. Outcomes that still wait for the ledger get a last chance
// of two seconds. The ledger may be closed afterwards.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.NotReady()
	p.drainNow()
	done := make(chan struct{})
	go func() {
		for p.inFlight.Load() > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("%d effects were cut off; they are recorded as unknown", p.inFlight.Load())
	}
	if err != nil {
		p.kill(errShutdown)
		select {
		case <-done:
		case <-time.After(killGrace):
			err = fmt.Errorf("%d effects could not be settled in time; they read unknown", p.inFlight.Load())
		}
	}
	last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if n := p.backlog.wait(last); n > 0 {
		err = fmt.Errorf("%d outcomes could not be written to the ledger and read unknown", n)
	}
	p.kill(errShutdown)
	p.running.Wait()
	p.ways.close()
	return err
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fencepost/cmd/fencepost/internal/config"
	"fencepost/keystore"
	"fencepost/keystore/sqlitestore"
	"fencepost/proxy"
)

// serve runs the proxy until SIGTERM or SIGINT. SIGHUP reloads the rules.
func serve(args []string, _, stderr io.Writer) int {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	var s settings
	s.register(fs)
	if code, done := parse(fs, args, stderr); done {
		return code
	}
	c, err := s.load()
	if err != nil {
		fmt.Fprintf(stderr, "fencepost serve: the configuration is refused\n%v\n", err)
		return exitUsage
	}
	// Two channels: a storm of reloads must not push a stop out.
	stops, reloads := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTERM, syscall.SIGINT)
	// Never undone: a reload that comes in the last moment must not kill the stop.
	signal.Notify(reloads, syscall.SIGHUP)

	srv, err := startServer(c, newLogger(c, stderr))
	if errors.Is(err, sqlitestore.ErrInUse) {
		err = fmt.Errorf("%w. Stop the other one, or name another file (ledger.url, or --ledger)", err)
	}
	if err != nil {
		return fail(stderr, "serve", err)
	}
	for {
		select {
		case <-stops:
			// A second signal means now.
			if err := srv.stop(stops); err != nil {
				return fail(stderr, "serve", err)
			}
			return exitOK
		case err := <-srv.failed:
			_ = srv.stop(stops)
			return fail(stderr, "serve", err)
		case <-reloads:
			if len(stops) == 0 {
				srv.reload(&s)
			}
		}
	}
}

// server is a running proxy with its listeners and its ledger.
type server struct {
	config *config.Config
	log    *slog.Logger
	ledger keystore.Store
	proxy  *proxy.Proxy
	main   *proxy.Server
	admin  *proxy.Server
	egress *proxy.Egress // nil where there is none
	bound  bound
	ofRun  bool // it serves one command
	failed chan error
}

// startServer checks the ledger, binds the listeners and begins to serve. What
// it began it undoes when a later step fails.
func startServer(c *config.Config, log *slog.Logger) (*server, error) {
	return startServerFor(c, log, false)
}

// startServerFor is startServer; ofRun says that it serves one command.
func startServerFor(c *config.Config, log *slog.Logger, ofRun bool) (_ *server, err error) {
	rules, err := rulesOf(c)
	if err != nil {
		return nil, err
	}
	instance := proxy.NewInstance()
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	store, err := openLedger(ctx, c, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			store.Close()
		}
	}()
	if err := admit(ctx, store, log); err != nil {
		return nil, err
	}
	pc, err := proxyConfig(c, rules, store, instance, log)
	if err != nil {
		return nil, err
	}
	// Bind before anything is started: a taken port is a slip, not a crash.
	b, err := bind(c)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	p, err := proxy.New(pc)
	if err != nil {
		return nil, err
	}
	s := &server{config: c, log: log, ledger: store, proxy: p, bound: b, ofRun: ofRun, failed: make(chan error, 3)}
	if err = s.makeServers(); err != nil {
		return nil, err
	}
	p.OwnListener(b.main.Addr())
	p.OwnListener(b.admin.Addr())
	go s.run(s.main.Serve, b.main)
	go s.run(s.admin.Serve, b.admin)
	attrs := []any{"version", versionString(), "listen", b.main.Addr().String(), "admin", b.admin.Addr().String(), "instance", instance, "routes", len(c.Routes), "profiles", profilesOf(c), "callers", len(c.Callers)}
	if s.egress != nil {
		go s.run(s.egress.Serve, b.egress)
		attrs = append(attrs, "egress", b.egress.Addr().String())
	}
	log.Info("serving", attrs...)
	return s, nil
}

// makeServers makes what serves the listeners.
func (s *server) makeServers() (err error) {
	c, log := s.config, s.log
	options := serverOptions(c, log)
	options.CertFile, options.KeyFile = c.TLS.Cert, c.TLS.Key
	if s.main, err = proxy.NewServer(s.proxy, options); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	if s.admin, err = proxy.NewServer(s.proxy.Admin(), serverOptions(c, log)); err != nil {
		return err // unreachable: it has no certificate
	}
	if !c.Egress.On() {
		return nil
	}
	authority, err := openAuthority(c, log)
	if err != nil {
		return err
	}
	s.egress, err = s.proxy.NewEgress(proxy.EgressOptions{
		Server: serverOptions(c, log), Authority: authority, Identity: s.identity(), API: s.bound.main.Addr().String(), MaxTunnels: c.Egress.MaxTunnels, TunnelIdle: time.Duration(c.Egress.TunnelIdle),
	})
	return err
}

// identity says which egress proxy this is: the one of a configuration, which
// anybody with the same one may use; or that of a run, which ends with its command.
func (s *server) identity() string {
	if s.ofRun {
		return "run"
	}
	return s.config.Digest()
}

// bound are the listeners of a server.
type bound struct{ main, admin, egress net.Listener }

func bind(c *config.Config) (b bound, err error) {
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.main, err = net.Listen("tcp", c.Listen); err != nil {
		return b, fmt.Errorf("cannot listen (listen, or --listen): %w", err)
	}
	if b.admin, err = net.Listen("tcp", c.Admin.Listen); err != nil {
		return b, fmt.Errorf("cannot listen for admin (admin.listen, or --admin-listen): %w", err)
	}
	if c.Egress.On() {
		if b.egress, err = net.Listen("tcp", c.Egress.Listen); err != nil {
			return b, fmt.Errorf("cannot listen for egress (egress.listen): %w", err)
		}
	}
	return b, nil
}

func (b bound) close() {
	for _, l := range []net.Listener{b.main, b.admin, b.egress} {
		if l != nil {
			l.Close()
		}
	}
}

// admit asks the ledger whether it can keep the promise, and does not start on
// one that cannot.
func admit(ctx context.Context, store keystore.Store, log *slog.Logger) error {
	findings, err := store.Check(ctx)
	if err != nil {
		return fmt.Errorf("the ledger is not available: %w", err)
	}
	var fatal []error
	for _, f := range findings {
		if f.Fatal {
			fatal = append(fatal, errors.New("the ledger cannot keep the promise: "+f.Message))
		} else {
			log.Warn("ledger", "finding", f.Message)
		}
	}
	return errors.Join(fatal...)
}

func (s *server) run(serve func(net.Listener) error, l net.Listener) {
	if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		s.failed <- fmt.Errorf("the listener %s failed: %w", l.Addr(), err)
	}
}

func serverOptions(c *config.Config, log *slog.Logger) proxy.ServerOptions {
	return proxy.ServerOptions{
		HeaderTimeout: time.Duration(c.Limits.HeaderTimeout), IdleTimeout: time.Duration(c.Limits.IdleTimeout), MaxHeaderBytes: int(c.Limits.Header),
		Logger: log,
	}
}

// reload reads the configuration again and swaps the rules, or keeps the old
// ones and says why.
func (s *server) reload(from *settings) {
	err := s.swap(from)
	s.proxy.SetReloaded(err == nil)
	if err != nil {
		s.log.Error("reload refused; the old configuration stays in force", "error", err)
		return
	}
	s.log.Info("reloaded", "routes", len(s.config.Routes), "profiles", profilesOf(s.config), "callers", len(s.config.Callers))
}

func (s *server) swap(from *settings) error {
	c, err := from.load()
	if err != nil {
		return err
	}
	if changed := s.config.Fixed(c); len(changed) > 0 {
		return fmt.Errorf("%v can only be changed by a restart; only routes, callers, and where egress may go are reloaded", changed)
	}
	rules, err := rulesOf(c)
	if err != nil {
		return err
	}
	if err := s.proxy.Reload(rules); err != nil {
		return err
	}
	if lost := s.config.LostCallers(c); len(lost) > 0 {
		s.log.Warn("callers are gone from the configuration; their keys can be reached again only under the same names", "callers", lost)
	}
	s.config = c
	return nil
}

// lastWords is how long answers about what was cut off have to leave.
const lastWords = 500 * time.Millisecond

// stop drains: readiness fails first, so that a balancer looks elsewhere; then
// the listeners close, what is under way finishes, and what does not is
// recorded as UNKNOWN. A further signal ends the patience.
func (s *server) stop(hurry <-chan os.Signal) error {
	s.log.Info("draining", "delay", time.Duration(s.config.Drain.Delay).String(), "timeout", time.Duration(s.config.Drain.Timeout).String())
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.config.Drain.Delay+s.config.Drain.Timeout))
	defer cancel()
	go func() {
		select {
		case <-hurry:
			cancel()
		case <-ctx.Done():
		}
	}()
	// When the patience ends, connections whose callers do not read, or do not
	// finish sending, are closed: they must not keep the process.
	defer context.AfterFunc(ctx, func() {
		time.Sleep(lastWords)
		_ = s.main.Close()
		if s.egress != nil {
			_ = s.egress.Close()
		}
	})()
	s.proxy.NotReady()
	select {
	case <-time.After(time.Duration(s.config.Drain.Delay)):
	case <-ctx.Done():
	}
	closed := make(chan struct{})
	go func() {
		// Stops accepting at once and returns when every connection is idle.
		if s.egress != nil {
			_ = s.egress.Shutdown(ctx)
		}
		_ = s.main.Shutdown(ctx)
		close(closed)
	}()
	err := s.proxy.Shutdown(ctx)
	<-closed
	_ = s.main.Close()
	if s.egress != nil {
		_ = s.egress.Close()
	}
	_ = s.admin.Close()
	if cerr := s.ledger.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("closing the ledger: %w", cerr))
	}
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}

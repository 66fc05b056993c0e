package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"fencepost/cmd/fencepost/internal/config"
	"fencepost/keystore"
	"fencepost/proxy"
)

// rulesOf makes the reloadable part of a configuration.
func rulesOf(c *config.Config) (proxy.Rules, error) {
	routes, egressRoutes, err := c.PolicyRoutes()
	if err != nil {
		return proxy.Rules{}, err
	}
	rules := proxy.Rules{Routes: routes}
	if c.Egress.On() {
		rules.EgressRoutes = egressRoutes
		if rules.Egress, err = c.Egress.Policy(egressRoutes); err != nil {
			return rules, fmt.Errorf("egress: %w", err)
		}
	}
	rules.Callers, err = c.PolicyCallers()
	return rules, err
}

// proxyConfig turns the configuration into the proxy's.
func proxyConfig(c *config.Config, rules proxy.Rules, store keystore.Store, instance string, log *slog.Logger) (proxy.Config, error) {
	pc := proxy.Config{
		Ledger: store, Rules: rules, FingerprintKey: []byte(c.Ledger.FingerprintKey), Instance: instance, Logger: log,
		Retention: time.Duration(c.Ledger.Retention), Tombstone: time.Duration(c.Ledger.Tombstone),
		OwnerDeadline: time.Duration(c.Ledger.OwnerDeadline), SweepEvery: time.Duration(c.Ledger.SweepEvery),
		MaxWait: time.Duration(c.Limits.Wait), LateAnswer: time.Duration(c.Limits.LateAnswer), MaxWaiters: c.Limits.Waiters, MaxPending: c.Limits.Pending, MaxPendingBytes: int64(c.Limits.PendingBytes),
		SpoolMemory: int(c.Limits.BodyMemory), BodyTimeout: time.Duration(c.Limits.BodyTimeout), StreamAfter: time.Duration(c.Limits.StreamAfter),
		Forwarded:  map[string]proxy.Forwarded{"off": proxy.ForwardedOff, "pass": proxy.ForwardedPass, "set": proxy.ForwardedSet, "append": proxy.ForwardedAppend}[c.Forwarded],
		AdminToken: string(c.Admin.Token), ThreeSteps: c.Ledger.Replicas > 0 || c.Ledger.ReplicaFsync,
		Upstream: proxy.UpstreamConfig{
			MaxIdle: c.Upstreams.MaxIdle, MaxConns: c.Upstreams.MaxConns, IdleTimeout: time.Duration(c.Upstreams.IdleTimeout),
			DialTimeout: time.Duration(c.Upstreams.DialTimeout), TLSTimeout: time.Duration(c.Upstreams.TLSTimeout), MaxHeaderBytes: int64(c.Upstreams.Header),
		},
	}
	var err error
	if pc.Egress.AllowCIDRs, err = c.Egress.CIDRs(); err != nil {
		return pc, fmt.Errorf("egress: %w", err)
	}
	if pc.Egress.Parent, err = c.Egress.ParentURL(); err != nil {
		return pc, fmt.Errorf("egress.parent: %w", err)
	}
	if pc.Vault, err = c.Ledger.Vault(); err != nil {
		return pc, fmt.Errorf("ledger.seal: %w", err)
	}
	if c.Upstreams.CA != "" {
		roots, err := rootsFrom(c.Upstreams.CA)
		if err != nil {
			return pc, err
		}
		pc.Upstream.Roots = roots
	}
	return pc, nil
}

// newLogger makes the process's logger; everything goes to w.
func newLogger(c *config.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Log.Level)) // validated
	o := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

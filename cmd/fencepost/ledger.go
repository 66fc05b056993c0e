package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"fencepost/cmd/fencepost/internal/config"
	"fencepost/keystore"
	"fencepost/keystore/redisstore"
	"fencepost/keystore/sqlitestore"
)

// openLedger opens the ledger that the configuration names.
func openLedger(ctx context.Context, c *config.Config, log *slog.Logger) (keystore.Store, error) {
	l := c.Ledger
	if path, ok := strings.CutPrefix(string(l.URL), "sqlite://"); ok {
		return sqlitestore.Open(ctx, sqlitestore.Options{Path: path, Timeout: time.Duration(l.Timeout), Logger: log})
	}
	o := redisstore.Options{
		URL: string(l.URL), Prefix: l.Prefix, Timeout: time.Duration(l.Timeout),
		Replicas: l.Replicas, ReplicaTimeout: time.Duration(l.ReplicaTimeout), AOF: l.ReplicaFsync, Logger: log,
	}
	if l.OnRollback == "warn" {
		o.OnRollback = redisstore.Warn
	}
	if l.CA != "" {
		roots, err := rootsFrom(l.CA)
		if err != nil {
			return nil, err
		}
		o.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return redisstore.Open(ctx, o)
}

// rootsFrom reads a PEM bundle of certificate authorities.
func rootsFrom(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return pool, nil
}

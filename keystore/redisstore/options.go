package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"time"
)

// Options says which ledger to open and how far to trust it. Only URL is
// required.
type Options struct {
	// URL names the server:
	//
	//	redis://[user:password@]host:port/db
	//	redis+sentinel://[user:password@]host:port,host:port/master/db
	//	redis+cluster://[user:password@]host:port,host:port
	//
	// with rediss in place of redis for TLS. User and password are
	// percent-encoded. These fields may stand in it as query parameters instead:
	// prefix, timeout, replicas, replica_timeout, aof, on_rollback.
	URL string
	// Prefix begins every key, "fencepost" when empty. Two ledgers on one server
	// need two.
	Prefix string
	// TLS is used with rediss URLs, for a private CA or a server name. Nil means
	// the system's roots and the host's name.
	TLS *tls.Config
	// SentinelUsername and SentinelPassword are for the sentinels themselves,
	// where they ask for any.
	SentinelUsername string
	SentinelPassword string

	// Timeout bounds every call with all that happens in it, two seconds when
	// zero. Half of it bounds one try.
	Timeout time.Duration

	// Replicas is how many replicas must confirm a write that a send follows.
	// Zero asks none: see the package comment for what that can lose.
	Replicas int
	// ReplicaTimeout is how long to wait for them, a quarter of Timeout when zero.
	// It cannot be longer than a third of Timeout.
	ReplicaTimeout time.Duration
	// AOF asks that the primary (and Replicas replicas) also have the write
	// fsynced in the append-only file. Needs Redis 7.2.
	AOF bool

	// OnRollback says what follows when the ledger is found to have gone back in
	// time.
	OnRollback OnRollback
	// CheckEvery is the time between background checks, a minute when zero.
	CheckEvery time.Duration
	// Logger takes alarms; nil means slog.Default.
	Logger *slog.Logger

	// dial and clock are for tests: another way to a server, and milliseconds to
	// add to its clock.
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	clock func() int64
}

// OnRollback is what follows a ledger that went back in time.
type OnRollback uint8

const (
	// Refuse lets nothing be sent until AcknowledgeRollback. It is the default.
	Refuse OnRollback = iota
	// Warn only logs and reports a finding.
	Warn
)

const (
	defaultTimeout    = 2 * time.Second
	defaultCheckEvery = time.Minute
	minTimeout        = 20 * time.Millisecond
)

var (
	prefixForm = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)
	scopeForm  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// complete merges what the URL says into o, sets defaults and reports everything
// that is wrong at once.
func (o *Options) complete() (*address, error) {
	addr, err := parseURL(o)
	errs := []error{err}
	fault := func(format string, a ...any) { errs = append(errs, fmt.Errorf("redisstore: "+format, a...)) }

	if o.Prefix == "" {
		o.Prefix = "fencepost"
	}
	if !prefixForm.MatchString(o.Prefix) {
		fault("prefix %q: use 1 to 64 of A-Z a-z 0-9 . _ : -", o.Prefix)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Timeout < minTimeout {
		fault("timeout %v is shorter than %v: no call would end well", o.Timeout, minTimeout)
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = o.Timeout / 4
	}
	if o.Replicas < 0 {
		fault("replicas cannot be %d", o.Replicas)
	}
	if o.ReplicaTimeout < time.Millisecond || o.ReplicaTimeout > o.Timeout/3 {
		fault("replica_timeout %v must be between 1ms and a third of timeout (%v)", o.ReplicaTimeout, o.Timeout/3)
	}
	if o.OnRollback > Warn {
		fault("on_rollback has no value %d", o.OnRollback)
	}
	if o.CheckEvery == 0 {
		o.CheckEvery = defaultCheckEvery
	}
	if o.CheckEvery < 0 {
		fault("the time between checks cannot be %v", o.CheckEvery)
	}
	if o.TLS != nil && addr != nil && !addr.tls {
		fault("TLS settings are given, but the URL does not ask for TLS: use rediss")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.clock == nil {
		o.clock = func() int64 { return 0 }
	}
	return addr, errors.Join(errs...)
}

// waits reports whether a write that a send follows has to be confirmed.
func (o *Options) waits() bool { return o.Replicas > 0 || o.AOF }

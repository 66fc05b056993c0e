package proxy

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// Config is what a Proxy is made of. Zero values of durations and limits mean
// the default named in the field's comment.
type Config struct {
	// Ledger keeps the records. Required. The caller closes it after Shutdown.
	Ledger keystore.Store
	// Rules are the routes and callers. Required; see Proxy.Reload.
	Rules Rules
	// Vault says in which form responses rest in the ledger. Default: as they are.
	Vault *keystore.Vault
	// FingerprintKey, when not empty, makes fingerprints HMACs.
	FingerprintKey []byte

	// Instance names this process in records and logs. It must be unique among
	// the proxies of one ledger. Default: host name and a random number.
	Instance string

	// Retention is how long a completed record keeps its response, and a free
	// reservation its key. Default 24 h.
	Retention time.Duration
	// Tombstone is how long a completed record is known after that. Default 720 h.
	Tombstone time.Duration
	// OwnerDeadline is how long an attempt may be silent before others take it
	// for dead. A living attempt extends it in time. Default 30 s.
	OwnerDeadline time.Duration
	// ThreeSteps keeps claim and mark apart even where a connection is at hand: for
	// ledgers whose mark waits for replicas, so that only what is sent waits.
	ThreeSteps bool
	// SweepEvery is the pause between two looks for expired records. Default 1 min.
	SweepEvery time.Duration

	// ReconcileEvery is the pause between two looks for operations that are due to
	// be reconciled. Default 5 s.
	ReconcileEvery time.Duration

	// MaxWait bounds how long a duplicate may wait for an in-flight result,
	// whatever it asks for. Default 60 s.
	MaxWait time.Duration
	// LateAnswer is how long after a route's time limit an answer is still
	// awaited, so that it can settle the doubt. Zero means not at all.
	LateAnswer time.Duration
	// MaxWaiters bounds how many duplicates wait at once. Default 10 000.
	MaxWaiters int
	// MaxPending bounds how many outcomes wait in memory for a ledger that is
	// away, and MaxPendingBytes the bodies among them. Past either, nothing new
	// is sent. Defaults 10 000 and 256 MiB.
	MaxPending      int
	MaxPendingBytes int64

	// SpoolMemory is how much of one request body is held in memory before it
	// goes to a temporary file. Default 256 KiB.
	SpoolMemory int
	// BodyTimeout bounds reading one request body. Default 60 s.
	BodyTimeout time.Duration
	// StreamAfter is how long after its header an answer of undeclared length may
	// take to be complete. One that takes longer is passed on as it comes, and
	// recorded at its end. Default 500 ms.
	StreamAfter time.Duration
	// SpoolDir is where temporary files go. Default os.TempDir.
	SpoolDir string

	// Forwarded says what becomes of X-Forwarded-* and Forwarded.
	Forwarded Forwarded

	// Egress says how the egress proxy reaches its destinations.
	Egress EgressConfig

	// Upstream tunes the connections to upstreams.
	Upstream UpstreamConfig

	// AdminToken, when not empty, must come as a bearer token with every request
	// to the admin listener except /healthz and /readyz.
	AdminToken string

	// Logger gets the log. Default slog.Default().
	Logger *slog.Logger
}

// UpstreamConfig tunes the connections to upstreams. Zero values mean the
// default named in each comment.
type UpstreamConfig struct {
	// MaxIdle is how many idle connections are kept per upstream. Default 256.
	MaxIdle int
	// MaxConns bounds the connections per upstream for governed requests; a
	// request waits for one before it is marked as sent. Default unbounded.
	MaxConns int
	// IdleTimeout closes a connection that was idle so long. Default 30 s: the
	// longer it idles, the likelier its peer is just closing it.
	IdleTimeout time.Duration
	// DialTimeout bounds connecting, and TLSTimeout the TLS handshake after it.
	// Defaults 10 s each.
	DialTimeout time.Duration
	TLSTimeout  time.Duration
	// Roots are the certificate authorities that upstreams are checked against.
	// Default: the system's.
	Roots *x509.CertPool
	// MaxHeaderBytes bounds an upstream's response header. Default 1 MiB.
	MaxHeaderBytes int64
}

// EgressConfig says how the egress proxy reaches its destinations.
type EgressConfig struct {
	// AllowCIDRs are special-purpose addresses that may be reached all the same.
	AllowCIDRs []netip.Prefix
	// Parent is the proxy that destinations are reached through, http or https,
	// perhaps with credentials. nil: they are reached directly. It resolves the
	// names, so that AllowCIDRs and what is refused without them only concern
	// destinations that are addresses.
	Parent *url.URL
}

// Rules are the parts of a configuration that can be exchanged while requests
// are served.
type Rules struct {
	// Routes decide what is governed and how. Required.
	Routes *policy.Table
	// Callers are who may call; nil means one anonymous scope.
	Callers *policy.Callers
	// Egress decides where clients of the egress proxy may go; nil where there is no
	// egress proxy. EgressRoutes are its routes, which Egress was made with.
	Egress       *policy.Egress
	EgressRoutes *policy.Table
}

// Forwarded says what becomes of the X-Forwarded-* and Forwarded fields.
type Forwarded uint8

const (
	// ForwardedOff removes them and adds none: the upstream is a third party and
	// learns nothing about the network here. The default.
	ForwardedOff Forwarded = iota
	// ForwardedPass leaves them as the client sent them.
	ForwardedPass
	// ForwardedSet replaces them with this hop's own.
	ForwardedSet
	// ForwardedAppend adds this hop to X-Forwarded-For of a trusted client.
	ForwardedAppend
)

func (c *Config) fill() error {
	var errs []error
	if c.Ledger == nil {
		errs = append(errs, errors.New("proxy: Config.Ledger is required"))
	}
	if c.Rules.Routes == nil {
		errs = append(errs, errors.New("proxy: Config.Rules.Routes is required"))
	}
	if c.Vault == nil {
		var err error
		if c.Vault, err = keystore.NewVault(keystore.VaultOptions{}); err != nil {
			errs = append(errs, err)
		}
	}
	def(&c.Retention, 24*time.Hour)
	def(&c.Tombstone, 720*time.Hour)
	def(&c.OwnerDeadline, 30*time.Second)
	def(&c.SweepEvery, time.Minute)
	def(&c.ReconcileEvery, 5*time.Second)
	def(&c.MaxWait, time.Minute)
	def(&c.MaxWaiters, 10_000)
	def(&c.MaxPending, 10_000)
	def(&c.MaxPendingBytes, 256<<20)
	def(&c.SpoolMemory, 256<<10)
	def(&c.BodyTimeout, time.Minute)
	def(&c.StreamAfter, 500*time.Millisecond)
	def(&c.SpoolDir, os.TempDir())
	def(&c.Upstream.MaxIdle, 256)
	def(&c.Upstream.IdleTimeout, 30*time.Second)
	def(&c.Upstream.DialTimeout, 10*time.Second)
	def(&c.Upstream.TLSTimeout, 10*time.Second)
	def(&c.Upstream.MaxHeaderBytes, 1<<20)
	if c.Instance == "" {
		c.Instance = NewInstance()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

// def puts the default where the value is zero.
func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

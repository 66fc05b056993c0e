package keystore

import "time"

// Lease is the fencing state of one run. It is never deleted: tokens must grow
// for as long as anyone may hold an old one.
type Lease struct {
	Scope string
	Run   string
	// Owner is who holds it, or "" when released.
	Owner string
	// Token grows with every acquisition of the run and never goes back.
	Token uint64
	// AcquiredAt and ExpiresAt are the store's. A zero ExpiresAt is a lease that
	// is not ours to expire: tokens of an external lease system.
	AcquiredAt Instant
	ExpiresAt  Instant
	Version    uint64
	Writer     string
}

// Live reports whether the lease is held at the store's moment now.
func (l *Lease) Live(now Instant) bool {
	return l.Owner != "" && !l.ExpiresAt.Reached(now)
}

// LeaseWrite is one change of a lease, guarded like a record's: Lease.Version
// is the version the write makes.
type LeaseWrite struct {
	Lease Lease
	// TTL is added to the store's clock to give ExpiresAt; zero makes it expired
	// at once.
	TTL time.Duration
	// MustBeLive refuses the write (with LeaseLost) when the stored lease has
	// expired by the store's clock: a renewal cannot revive what was lost.
	MustBeLive bool
}

// LeaseReply is what a store knows of a lease after a call.
type LeaseReply struct {
	Result Result
	Lease  Lease
	Now    Instant
}

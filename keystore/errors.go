package keystore

import "errors"

// Errors of stores. Any other error leaves open whether a write happened.
var (
	// ErrNotWritten is in the chain of errors that prove that nothing was written.
	ErrNotWritten = errors.New("nothing was written")
	// ErrClosed: the store was closed. Implies ErrNotWritten.
	ErrClosed = errors.New("the ledger is closed")
	// ErrReplicas: the write happened on the primary, but not on enough replicas
	// to be believed. No effect may follow.
	ErrReplicas = errors.New("too few replicas confirmed the write")
	// ErrRolledBack: the ledger went back in time (failover, restore, flush).
	// Nothing in it can be trusted until an operator acknowledges it.
	ErrRolledBack = errors.New("the ledger went back in time")
)

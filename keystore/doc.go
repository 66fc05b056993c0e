// Package keystore is the ledger: what Fencepost knows about each effect, and
// the rules by which that knowledge may change.
//
// # One operation, one record
//
// An operation is one logical effect, named by (scope, key). Its [Record] says
// what was asked for, who is doing it, how far it got and how that is known.
// A record is in one of five states:
//
//	RESERVED    intent written, nothing sent
//	DISPATCHED  bytes may have left this machine
//	UNKNOWN     sent, and no authoritative outcome
//	COMPLETED   outcome known; duplicates are answered with it
//	ABANDONED   settled as not applied, never to be sent again
//
// What may follow what is decided by one pure function, [Next]. Stores do not
// repeat its rules; they only promise that a write happens against the version
// that [Next] saw, or not at all.
//
// # What is read is not always what was written
//
// A crashed proxy leaves DISPATCHED behind and tells nobody. So a DISPATCHED
// record whose deadline has passed reads as UNKNOWN ([Record.Reads]), with no
// sweep needed. In the same way a RESERVED record whose owner is gone reads as
// free, and a settled record past its retention reads as a tombstone even if
// its response has not been swept away yet.
//
// # Stores
//
// A [Store] is a versioned compare-and-swap over records with a clock of its
// own. Its interface comment is the contract that keystore/storetest checks
// against every implementation.
//
// # Time
//
// Instants in records are the store's: a writer leaves [StampNow] where the
// moment of the write belongs and the store puts its own clock there. Deadlines
// travel to the store as durations. A proxy's own wall clock is never written
// and never compared with a record.
//
// # Writes whose reply is lost
//
// A client may not learn whether its write happened. Every version therefore
// carries the id of its writer, and a write that is repeated recognises its own
// earlier success instead of reporting a conflict with itself.
package keystore

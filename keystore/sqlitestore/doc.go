// Package sqlitestore keeps the ledger in one SQLite file, for one process.
//
// # What is promised
//
// A write that was reported is in the file's write-ahead log and was synced to
// the disk (journal_mode=WAL, synchronous=FULL): it outlives a kill of the
// process and a power cut, as long as the disk does what it says it did.
// synchronous=NORMAL lost acknowledged writes when the power was cut, and is
// not offered.
//
// # One writer
//
// All writes go through one goroutine (writer.go). It takes whatever waits, runs
// it in one transaction and answers everybody after the one commit, so that a
// hundred concurrent requests share one sync. Reads that need no transaction
// have connections of their own.
//
// # One process
//
// The file FILE.lock is held with flock for as long as the store is open, so a
// second process is refused. This is why Exclusive is true: whatever owner the
// ledger names is either this process or gone.
//
// # Tables
//
//	ops     one row an operation: the columns that are compared or sorted by,
//	        and the record itself (keystore.Encode), readable with sqlite3
//	bodies  response bodies, apart from ops so that lists stay small
//	leases  the fencing state of runs; never deleted
//
// PRAGMA user_version is the schema's version. A file of a later version is
// refused, not guessed at.
//
// # Size
//
// Deleted rows leave pages that are used again; the file does not shrink. The
// log is checkpointed in the background and restarted by the writer when it has
// grown past a bound, so it stays small under steady load.
//
// # Failure
//
// A statement that fails undoes its transaction, and its callers are told that
// nothing was written. A commit that fails leaves it open whether it happened:
// the store then refuses everything (the file may hold more than was promised,
// and a failed sync must not be tried again) until it is opened anew.
package sqlitestore

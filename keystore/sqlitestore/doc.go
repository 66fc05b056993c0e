// Package sqlitestore keeps the ledger in one SQLite file, for one process.
//
// # What is promised
//
// A write that was reported is in the file's write-ahead log and was synced to
// the disk (journal_mode=WAL, synchronous=FULL): it outlives a kill of the
// process and a power cut, as long as the disk does what it says it did.
// synchronous=NORMAL lost acknowledged writes when the power was cut, and is
// not offered. What a killed process left unsynced in the log is moved into the
// file and synced by Open, before anybody is told of it.
//
// # One writer
//
// All writes go through one goroutine (writer.go). It takes whatever waits, runs
// it in one transaction and answers everybody after the one commit, so that a
// hundred concurrent requests share one sync. A job (job.go) holds copies of
// what it writes; a caller may leave while it waits, with nothing written, and
// after that only without knowing. Records are encoded and decoded by the
// callers, so that one that is damaged is an error for whoever asked for it, is
// left out of lists with a logged error, and is nobody else's trouble.
//
// Reads have connections of their own (read.go) and see what is committed and
// synced. An insert of a key that is known to exist (known.go) is first looked
// up there: a replay needs no commit.
//
// SQLite is called through modernc.org/sqlite/lib, its C interface in Go, with
// the few calls of sqlite.go: it halves the processor time of a write against
// database/sql. Commits use fdatasync where there is one, for all of SQLite in
// the process.
//
// # One process
//
// FILE.lock, and on Linux FILE itself, are held with flock for as long as the
// store is open, so that a second process is refused whatever name it uses. This
// is why Exclusive is true: whatever owner the ledger names is either this
// process or gone. Other programs may read the file, and write it at their own
// risk: a lock they hold delays writes by half of Options.Timeout, which then
// fail with nothing written.
//
// # Tables
//
//	ops     one row an operation: the columns that are compared or sorted by,
//	        and the record itself, as keystore.Encode makes it
//	bodies  response bodies, apart from ops so that lists stay small
//	leases  the fencing state of runs; never deleted
//	clock   the store's clock, so that it does not go back over a restart
//
// PRAGMA user_version is the schema's version. A file of a later version is
// refused, not guessed at, and no file that is refused is changed. Numbers
// without sign are stored as the signed ones with the same bits.
//
// # Size
//
// Deleted rows leave pages that are used again; the file does not shrink. The
// log is checkpointed in the background and restarted by the writer when it has
// grown past a bound, so it stays small under steady load, unless another
// program keeps a read transaction open.
//
// # Failure
//
// A job that fails undoes its transaction, and the others in it are run again by
// themselves. Where the log could not grow (the disk or a quota is full) the
// commit did not happen and its callers are told that nothing was written; the
// store serves on when there is room. Any other failed commit, above all a
// failed sync, leaves it open whether it happened: its callers get an error
// without keystore.ErrNotWritten, and the store refuses everything, reads
// included, until it is opened anew; a failed sync is not tried again. It also
// stops when its file or log is moved, deleted or replaced while it is open.
package sqlitestore

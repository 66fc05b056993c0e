package sqlitestore

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"fencepost/keystore"
)

// primary returns SQLite's primary result code of an error, or 0.
func primary(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// explain says what an error of opening a file means and what to do.
func explain(path string, err error) error {
	what := ""
	switch primary(err) {
	case sqlite3.SQLITE_NOTADB:
		what = "it is not a SQLite file; name another one"
	case sqlite3.SQLITE_CORRUPT:
		what = "it is damaged; restore it from a backup, or recover it with sqlite3's .recover and treat every operation that is missing as UNKNOWN"
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		what = "another program has it locked; close that program"
	case sqlite3.SQLITE_FULL:
		what = "the disk is full; make room"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		what = "it cannot be written; check the permissions of the file and its folder"
	case sqlite3.SQLITE_IOERR:
		what = "the disk reports an error"
	default:
		return fmt.Errorf("cannot open the ledger %s: %w", path, err)
	}
	return fmt.Errorf("cannot open the ledger %s: %s (%w)", path, what, err)
}

// unwritable reports whether a commit failed because the log could not be
// written to its end: the disk is full, or the file may not grow. What makes a
// transaction count is the last frame of it, so it did not happen.
func unwritable(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code()&0xff == sqlite3.SQLITE_FULL || e.Code() == sqlite3.SQLITE_IOERR_WRITE
}

// notWritten marks an error as proof that nothing was written.
func notWritten(err error) error {
	return fmt.Errorf("sqlite ledger: %w (%w)", err, keystore.ErrNotWritten)
}

var errClosed = fmt.Errorf("%w: %w", keystore.ErrClosed, keystore.ErrNotWritten)

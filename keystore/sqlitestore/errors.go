package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"fencepost/keystore"
)

// sqliteError is an error as SQLite reports it.
type sqliteError struct {
	code  int32 // extended result code
	errno syscall.Errno
	text  string
}

func (e *sqliteError) Error() string {
	if e.errno != 0 {
		return fmt.Sprintf("sqlite: %s (%d): %v", e.text, e.code, e.errno)
	}
	return fmt.Sprintf("sqlite: %s (%d)", e.text, e.code)
}

// fail is the connection's last error.
func (c *conn) fail(rc int32) error {
	e := &sqliteError{code: rc, text: libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, rc))}
	if c.db == 0 {
		return e
	}
	e.text = libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db))
	switch rc & 0xff {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		e.errno = syscall.Errno(sqlite3.Xsqlite3_system_errno(c.tls, c.db))
	}
	return e
}

// primary returns SQLite's primary result code of an error, or 0.
func primary(err error) int32 {
	var e *sqliteError
	if errors.As(err, &e) {
		return e.code & 0xff
	}
	return 0
}

// explain says what an error of opening a file means and what to do.
func explain(path string, err error) error {
	what := ""
	switch primary(err) {
	case sqlite3.SQLITE_NOTADB:
		what = "it is not a SQLite file, or its first page is damaged; name another one, or restore it from a backup"
	case sqlite3.SQLITE_CORRUPT:
		what = "it is damaged; restore it from a backup, or recover it with sqlite3's .recover and treat every operation that is missing as UNKNOWN"
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		what = "another program has it locked; close that program"
	case sqlite3.SQLITE_FULL:
		what = "the disk is full; make room"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		what = "it cannot be written; check the permissions of the file and its folder"
	case sqlite3.SQLITE_IOERR:
		what = "the disk reports an error, or is full; look at the system's log"
	default:
		return fmt.Errorf("cannot open the ledger %s: %w", path, err)
	}
	return fmt.Errorf("cannot open the ledger %s: %s (%w)", path, what, err)
}

// noRoom reports whether a commit failed because the log could not grow. What
// makes a transaction count is the last frame of it, which then is not there,
// so it did not happen. Any other failed write may have left that frame behind.
func noRoom(err error) bool {
	var e *sqliteError
	if !errors.As(err, &e) {
		return false
	}
	switch {
	case e.code&0xff == sqlite3.SQLITE_FULL:
		return true
	case e.code == sqlite3.SQLITE_IOERR_WRITE:
		return e.errno == syscall.ENOSPC || e.errno == syscall.EDQUOT || e.errno == syscall.EFBIG
	}
	return false
}

// notWritten marks an error as proof that nothing was written.
func notWritten(err error) error {
	return fmt.Errorf("sqlite ledger: %w (%w)", err, keystore.ErrNotWritten)
}

var errClosed = fmt.Errorf("sqlite ledger: %w (%w)", keystore.ErrClosed, keystore.ErrNotWritten)

// late is the cause of a call that waited for its turn in vain.
func late(d time.Duration) error {
	return fmt.Errorf("the ledger was busy for longer than %v: %w", d, context.DeadlineExceeded)
}

// commitError is a commit that failed: it may have happened.
type commitError struct{ err error }

func (e *commitError) Error() string {
	return "sqlite ledger: a commit failed and may have happened all the same: " + e.err.Error()
}
func (e *commitError) Unwrap() error { return e.err }

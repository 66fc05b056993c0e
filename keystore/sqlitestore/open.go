package sqlitestore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"fencepost/keystore"
)

//go:embed schema.sql
var schema string

const (
	// schemaVersion is what this code writes into PRAGMA user_version.
	schemaVersion = 1
	// applicationID marks the file as a Fencepost ledger ("Fpst").
	applicationID = 0x46707374
)

// Store is a ledger in one SQLite file. Make one with Open.
type Store struct {
	opts   Options
	lock   *os.File
	db     *sql.DB // one writer connection and one for checkpoints
	reads  *sql.DB
	writer *writer

	clock  sync.Mutex
	last   keystore.Instant
	broken atomic.Pointer[error]
	closed atomic.Bool
	once   sync.Once
	cerr   error
}

// Open opens the ledger file, creating it where there is none. It fails with an
// error that says what to do when another process has the file, when it is not
// a ledger, damaged, or of a later version, and when it cannot be written.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.fill()
	if o.Path == "" {
		return nil, errors.New("the ledger has no file name; write sqlite://FILE")
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, err
	}
	o.Path = path
	s := &Store{opts: o}
	if s.lock, err = lockFile(path); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		s.release()
		return nil, explain(path, err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	// Created here rather than by SQLite so that nobody else can ever read it.
	f, err := os.OpenFile(s.opts.Path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if fi, err := f.Stat(); err == nil && fi.Mode().Perm()&0o077 != 0 {
		s.opts.Logger.Warn("the ledger can be read by other users; use chmod 600", "file", s.opts.Path, "mode", fi.Mode().Perm().String())
	}
	f.Close()

	if s.db, err = sql.Open("sqlite", dsn(s.opts.Path, "rw", "journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(0)", "busy_timeout(2000)", "cache_size(-16000)", "temp_store(MEMORY)")); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if s.reads, err = sql.Open("sqlite", dsn(s.opts.Path, "ro", "query_only(1)", "busy_timeout(2000)")); err != nil {
		return err
	}
	s.reads.SetMaxOpenConns(4)
	s.reads.SetMaxIdleConns(4)
	var newest sql.NullInt64
	if err := s.db.QueryRowContext(ctx, "SELECT max(updated) FROM (SELECT max(updated) AS updated FROM ops GROUP BY state)").Scan(&newest); err != nil {
		return err
	}
	s.last = keystore.Instant(newest.Int64)
	s.writer, err = newWriter(ctx, s)
	return err
}

// dsn names the file for the driver. Its own escaping keeps odd file names from
// becoming options.
func dsn(path, mode string, pragmas ...string) string {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}}
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// migrate creates the tables in an empty file and refuses any file that is not
// this version's.
func (s *Store) migrate(ctx context.Context) error {
	var version, app, tables int
	for pragma, v := range map[string]*int{"PRAGMA user_version": &version, "PRAGMA application_id": &app, "SELECT count(*) FROM sqlite_schema": &tables} {
		if err := s.db.QueryRowContext(ctx, pragma).Scan(v); err != nil {
			return err
		}
	}
	var mode string
	if err := s.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	switch {
	case mode != "wal":
		return fmt.Errorf("the file system does not let SQLite use a write-ahead log (journal mode is %q); keep the ledger on a local disk", mode)
	case tables == 0:
	case app != applicationID:
		return errors.New("it is a database, but not a Fencepost ledger; name another file")
	case version > schemaVersion:
		return fmt.Errorf("it was written by a later version of Fencepost (schema %d, this one knows %d); run that version", version, schemaVersion)
	case version == schemaVersion:
		return s.verify(ctx)
	default:
		return fmt.Errorf("its schema version %d is not known", version)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, q := range []string{schema, fmt.Sprintf("PRAGMA application_id = %d", applicationID), fmt.Sprintf("PRAGMA user_version = %d", schemaVersion)} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// verify looks for damage that can be seen quickly: the file's header and the
// pages of every tree's root. A full PRAGMA integrity_check takes minutes on a
// large ledger and is left to the operator.
func (s *Store) verify(ctx context.Context) error {
	for _, q := range []string{"SELECT count(*) FROM (SELECT 1 FROM ops LIMIT 1)", "SELECT count(*) FROM (SELECT 1 FROM bodies LIMIT 1)", "SELECT count(*) FROM (SELECT 1 FROM leases LIMIT 1)", "SELECT count(*) FROM (SELECT 1 FROM ops WHERE state = 3 LIMIT 1)"} {
		var n int
		if err := s.db.QueryRowContext(ctx, q).Scan(&n); err != nil {
			return err
		}
	}
	return nil
}

// lockFile takes FILE.lock, which is held as long as the store is open. The
// lock goes with the process, however it ends.
func lockFile(path string) (*os.File, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the ledger %s: %w", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the ledger %s is in use by another process; a SQLite ledger serves one process, several share a Redis ledger", path)
		}
		return nil, fmt.Errorf("cannot lock the ledger %s: %w", path, err)
	}
	return f, nil
}

// Exclusive implements keystore.Store: the file lock makes it true.
func (s *Store) Exclusive() bool { return true }

// now is the store's clock: the wall clock, except that it never goes back
// behind what is written in the ledger.
func (s *Store) now() keystore.Instant {
	t := keystore.InstantOf(s.opts.Now())
	s.clock.Lock()
	defer s.clock.Unlock()
	s.last = max(s.last, t)
	return s.last
}

// Close implements keystore.Store.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.writer.stop()
		if s.broken.Load() == nil {
			_, s.cerr = s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
		}
		s.release()
	})
	return s.cerr
}

// release closes what is open, in whatever state.
func (s *Store) release() {
	if s.writer != nil {
		s.writer.close()
	}
	if s.reads != nil {
		s.reads.Close()
	}
	if s.db != nil {
		s.db.Close()
	}
	s.lock.Close()
}

// checkpointEvery is the pause between two background checkpoints.
const checkpointEvery = 200 * time.Millisecond

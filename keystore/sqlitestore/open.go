package sqlitestore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"fencepost/keystore"
)

//go:embed schema.sql
var schema string

const (
	// schemaVersion is what this code writes into PRAGMA user_version.
	schemaVersion = 1
	// applicationID marks the file as a Fencepost ledger ("Fpst").
	applicationID = 0x46707374
	// durable makes a connection sync every commit, on macOS through the disk's
	// own cache, and leaves checkpoints to maintain.
	durable = "PRAGMA synchronous = FULL; PRAGMA fullfsync = 1; PRAGMA wal_autocheckpoint = 0; "
)

// Store is a ledger in one SQLite file. Make one with Open.
type Store struct {
	opts   Options
	hold   *hold
	files  files
	side   *conn // checkpoints in the background
	reads  *readers
	busy   sync.RWMutex // held for reading by reads under way
	known  known
	writer *writer
	clock  clock
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
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := resolve(o.Path)
	if err != nil {
		return nil, err
	}
	o.Path = path
	s := &Store{opts: o}
	var created bool
	if s.hold, created, err = take(path); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		s.release(false)
		if created {
			// Nothing was promised yet; an empty file would only puzzle.
			if fi, serr := os.Stat(path); serr == nil && fi.Size() == 0 {
				os.Remove(path)
			}
		}
		return nil, explain(path, err)
	}
	s.writer.start()
	return s, nil
}

func (s *Store) open() error {
	path := s.opts.Path
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		s.opts.Logger.Warn("the ledger can be read by other users; use chmod 600", "file", path, "mode", fi.Mode().Perm().String())
	}
	// The log has its size already most of the time, so that syncing only its
	// data saves the file system's journal: as durable, and much quicker.
	// (The setting is the process's, and fails only where it does not exist.)
	_, _ = sqlite.Fdatasync(true)

	c, err := dial(path, s.opts.vfs, false, s.opts.Timeout/2)
	if err != nil {
		return err
	}
	l, err := s.prepare(c)
	if err != nil {
		c.noCheckpointOnClose()
		c.close()
		return err
	}
	s.writer = newWriter(s, l)
	if s.side, err = dial(path, s.opts.vfs, false, 0); err != nil {
		return err
	}
	if err := s.side.exec(durable); err != nil {
		return err
	}
	if s.reads, err = newReaders(path, s.opts.vfs, s.opts.Timeout); err != nil {
		return err
	}
	return s.files.remember(path)
}

// prepare makes the connection the writer's, and the file a ledger.
func (s *Store) prepare(c *conn) (*ledger, error) {
	fresh, err := identify(c)
	if err != nil {
		return nil, err
	}
	if err := c.exec(durable + "PRAGMA cache_size = -16000; PRAGMA temp_store = MEMORY"); err != nil {
		return nil, err
	}
	if err := journal(c); err != nil {
		return nil, err
	}
	if fresh {
		err = c.exec(fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", schema, applicationID, schemaVersion))
	} else {
		err = verify(c)
	}
	if err != nil {
		return nil, err
	}
	// What a killed process wrote but had not synced can be read here. It must
	// be on the disk before anybody is told of it.
	if _, _, err := c.checkpoint(sqlite3.SQLITE_CHECKPOINT_TRUNCATE); primary(err) == busyCode {
		err = syncFile(s.opts.Path + "-wal")
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if err := s.loadClock(c); err != nil {
		return nil, err
	}
	// This write tells now, rather than before the first send, whether the
	// ledger can be written.
	l, err := newLedger(c)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{l.begin.run, func() error { return l.saveClock(s.now()) }, l.commit.run} {
		if err := step(); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

// identify refuses any file that is not this version's ledger, before anything
// in it is changed. fresh means that it is empty.
func identify(c *conn) (fresh bool, err error) {
	var n [3]int64
	for i, q := range []string{"PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema"} {
		if n[i], err = c.one(q); err != nil {
			return false, err
		}
	}
	app, version, things := n[0], n[1], n[2]
	switch {
	case app == 0 && version == 0 && things == 0:
		return true, nil
	case app != applicationID:
		return false, errors.New("it is a database, but not a Fencepost ledger; name another file")
	case version > schemaVersion:
		return false, fmt.Errorf("it was written by a later version of Fencepost (schema %d, this one knows %d); run that version", version, schemaVersion)
	case version != schemaVersion:
		return false, fmt.Errorf("its schema version %d is not known", version)
	}
	return false, nil
}

// journal turns the write-ahead log on.
func journal(c *conn) error {
	st, err := c.prepare("PRAGMA journal_mode = WAL")
	if err != nil {
		return err
	}
	defer st.close()
	if _, err := st.step(); err != nil {
		return err
	}
	if mode := st.text(0); mode != "wal" {
		return fmt.Errorf("the file system does not let SQLite use a write-ahead log (journal mode is %q); keep the ledger on a local disk", mode)
	}
	return nil
}

// verify looks for damage that can be seen quickly: the file's header, its
// length and the roots of its trees. A full PRAGMA integrity_check takes minutes
// on a large ledger and is left to the operator.
func verify(c *conn) error {
	for _, q := range []string{
		"SELECT 1 FROM ops NOT INDEXED LIMIT 1", "SELECT 1 FROM ops INDEXED BY ops_by_state WHERE state = 3 LIMIT 1",
		"SELECT 1 FROM ops INDEXED BY ops_by_expiry WHERE expires <> 0 LIMIT 1",
		"SELECT 1 FROM bodies LIMIT 1", "SELECT 1 FROM leases LIMIT 1", "SELECT now FROM clock",
	} {
		if _, err := c.one(q); err != nil {
			return err
		}
	}
	return nil
}

func syncFile(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// refuses says why a call cannot be served at all.
func (s *Store) refuses(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	if err := s.failure(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notWritten(err)
	}
	return nil
}

// Exclusive implements keystore.Store: the file lock makes it true.
func (s *Store) Exclusive() bool { return true }

// Close implements keystore.Store.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.writer.stop()
		s.busy.Lock()
		defer s.busy.Unlock()
		if s.failure() == nil {
			s.cerr = s.farewell()
		}
		s.release(s.failure() == nil)
	})
	return s.cerr
}

// farewell saves the clock and leaves an empty log behind.
func (s *Store) farewell() error {
	l := s.writer.l
	if now := s.now(); now > s.clock.saved {
		for _, step := range []func() error{l.begin.run, func() error { return l.saveClock(now) }, l.commit.run} {
			if err := step(); err != nil {
				return fmt.Errorf("closing the ledger %s: %w", s.opts.Path, err)
			}
		}
	}
	s.reads.close()
	s.reads = nil
	if _, _, err := l.c.checkpoint(sqlite3.SQLITE_CHECKPOINT_TRUNCATE); err != nil && primary(err) != busyCode {
		return fmt.Errorf("closing the ledger %s: %w", s.opts.Path, err)
	}
	return nil
}

// release closes what is open, in whatever state. Unless all is well, nothing
// more is written: a failed sync must not be tried again, and a file that was
// refused must stay as it is. SQLite would else move the log at the last close.
func (s *Store) release(well bool) {
	if s.reads != nil {
		s.reads.close()
	}
	var last *conn
	if s.writer != nil {
		s.writer.l.close()
		last = s.writer.l.c
	}
	for _, c := range []*conn{s.side, last} {
		if c == nil {
			continue
		}
		if !well {
			c.noCheckpointOnClose()
		}
		c.close()
	}
	s.hold.release()
}

var _ keystore.Store = (*Store)(nil)

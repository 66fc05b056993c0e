package sqlitestore

import (
	"fmt"
	"time"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"
)

// This file is the little of SQLite's C interface that the store needs, called
// without database/sql: a prepared statement that keeps its own memory costs a
// fifth of the processor time per write, and the proxy needs that time.
//
// A conn is used by one goroutine at a time; only interrupt may be called beside.

// SQLite before 3.51.3 could corrupt a log that one connection restarts while
// another checkpoints it, which is what this store does.
const _ = uint(sqlite3.SQLITE_VERSION_NUMBER - 3051003)

// conn is a connection to the file.
type conn struct {
	tls *libc.TLS
	db  uintptr
}

// dial opens a file that exists. The name is taken as it is: no URI, no options.
func dial(path, vfs string, readOnly bool, busy time.Duration) (*conn, error) {
	flags := int32(sqlite3.SQLITE_OPEN_NOMUTEX | sqlite3.SQLITE_OPEN_EXRESCODE)
	if readOnly {
		flags |= sqlite3.SQLITE_OPEN_READONLY
	} else {
		flags |= sqlite3.SQLITE_OPEN_READWRITE
	}
	c := &conn{tls: libc.NewTLS()}
	name, err := libc.CString(path)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, name)
	var zvfs uintptr
	if vfs != "" {
		if zvfs, err = libc.CString(vfs); err != nil {
			return nil, err
		}
		defer libc.Xfree(c.tls, zvfs)
	}
	out := c.tls.Alloc(8)
	defer c.tls.Free(8)
	rc := sqlite3.Xsqlite3_open_v2(c.tls, name, out, flags, zvfs)
	c.db = *(*uintptr)(pointer(out))
	if rc != sqlite3.SQLITE_OK {
		err := c.fail(rc)
		c.close()
		return nil, err
	}
	c.busy(busy)
	return c, nil
}

// pointer is the address p as C knows it. It never points into Go's memory.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// memory is n bytes of C memory at p.
func memory(p uintptr, n int) []byte { return unsafe.Slice((*byte)(pointer(p)), n) }

func (c *conn) busy(d time.Duration) {
	sqlite3.Xsqlite3_busy_timeout(c.tls, c.db, int32(d.Milliseconds()))
}

func (c *conn) close() {
	sqlite3.Xsqlite3_close_v2(c.tls, c.db)
	c.tls.Close()
}

// noCheckpointOnClose keeps the last close from moving the log into the file.
func (c *conn) noCheckpointOnClose() {
	va := c.tls.Alloc(16)
	defer c.tls.Free(16)
	sqlite3.Xsqlite3_db_config(c.tls, c.db, sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, libc.VaList(va, int32(1), uintptr(0)))
}

// interrupt ends what the connection runs. Any goroutine may call it.
func (c *conn) interrupt() {
	tls := libc.NewTLS()
	sqlite3.Xsqlite3_interrupt(tls, c.db)
	tls.Close()
}

// inTransaction reports whether a transaction is open: SQLite ends it by itself
// on some errors.
func (c *conn) inTransaction() bool { return sqlite3.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// changes counts the rows that the last statement changed.
func (c *conn) changes() int { return int(sqlite3.Xsqlite3_changes(c.tls, c.db)) }

// exec runs statements that return nothing.
func (c *conn) exec(text string) error {
	z, err := libc.CString(text)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, z)
	if rc := sqlite3.Xsqlite3_exec(c.tls, c.db, z, 0, 0, 0); rc != sqlite3.SQLITE_OK {
		return c.fail(rc)
	}
	return nil
}

// checkpoint moves the log into the file and says how long the log is, in pages,
// and how many of them have been moved.
func (c *conn) checkpoint(mode int32) (pages, moved int, err error) {
	out := c.tls.Alloc(8)
	defer c.tls.Free(8)
	rc := sqlite3.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, 0, mode, out, out+4)
	if rc != sqlite3.SQLITE_OK {
		err = c.fail(rc)
	}
	return int(*(*int32)(pointer(out))), int(*(*int32)(pointer(out + 4))), err
}

// one runs a query for its first column of its first row; 0 where there is none.
func (c *conn) one(text string) (int64, error) {
	st, err := c.prepare(text)
	if err != nil {
		return 0, err
	}
	defer st.close()
	ok, err := st.step()
	if !ok {
		return 0, err
	}
	return st.int(0), nil
}

// stmt is a prepared statement. Parameters count from 1, columns from 0.
type stmt struct {
	c *conn
	p uintptr
	// arena holds the texts and blobs that are bound, for as long as they are.
	arena, size, used uintptr
}

// arenaKeep is what a statement keeps of a large arena for its next run.
const arenaKeep = 64 << 10

func (c *conn) prepare(text string) (*stmt, error) {
	z, err := libc.CString(text)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, z)
	out := c.tls.Alloc(8)
	defer c.tls.Free(8)
	if rc := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, z, -1, sqlite3.SQLITE_PREPARE_PERSISTENT, out, 0); rc != sqlite3.SQLITE_OK {
		return nil, fmt.Errorf("preparing %q: %w", text, c.fail(rc))
	}
	return &stmt{c: c, p: *(*uintptr)(pointer(out))}, nil
}

func (s *stmt) close() {
	sqlite3.Xsqlite3_finalize(s.c.tls, s.p)
	if s.arena != 0 {
		libc.Xfree(s.c.tls, s.arena)
	}
}

// room makes the statement ready to be bound anew, with n bytes of values. There
// is an arena even for none: without an address, an empty text would be NULL.
func (s *stmt) room(n int) {
	need := uintptr(n)
	s.used = 0
	if s.arena != 0 && need <= s.size && (s.size <= arenaKeep || need > arenaKeep) {
		return
	}
	if s.arena != 0 {
		libc.Xfree(s.c.tls, s.arena)
	}
	s.size = max(need, 1024)
	s.arena = libc.Xmalloc(s.c.tls, types.Size_t(s.size))
}

// place copies a value of n bytes behind the others.
func (s *stmt) place(n int) (uintptr, []byte) {
	p := s.arena + s.used
	s.used += uintptr(n)
	return p, memory(p, n)
}

func (s *stmt) bindText(i int32, v string) {
	p, b := s.place(len(v))
	copy(b, v)
	sqlite3.Xsqlite3_bind_text(s.c.tls, s.p, i, p, int32(len(v)), 0)
}

func (s *stmt) bindBlob(i int32, v []byte) {
	p, b := s.place(len(v))
	copy(b, v)
	sqlite3.Xsqlite3_bind_blob(s.c.tls, s.p, i, p, int32(len(v)), 0)
}

func (s *stmt) bindInt(i int32, v int64) { sqlite3.Xsqlite3_bind_int64(s.c.tls, s.p, i, v) }

// step runs to the next row; false at the end. After false or an error the
// statement is ready for its next run; after true, reset makes it so.
func (s *stmt) step() (bool, error) {
	switch rc := sqlite3.Xsqlite3_step(s.c.tls, s.p); rc {
	case sqlite3.SQLITE_ROW:
		return true, nil
	case sqlite3.SQLITE_DONE:
		s.reset()
		return false, nil
	default:
		err := s.c.fail(rc)
		s.reset()
		return false, err
	}
}

// run steps a statement that returns no rows.
func (s *stmt) run() error {
	_, err := s.step()
	return err
}

func (s *stmt) reset() { sqlite3.Xsqlite3_reset(s.c.tls, s.p) }

func (s *stmt) int(i int32) int64 { return sqlite3.Xsqlite3_column_int64(s.c.tls, s.p, i) }

// raw is a text or blob column, valid until the next step.
func (s *stmt) raw(i int32) []byte {
	p := sqlite3.Xsqlite3_column_blob(s.c.tls, s.p, i)
	n := sqlite3.Xsqlite3_column_bytes(s.c.tls, s.p, i)
	if p == 0 || n == 0 {
		return nil
	}
	return memory(p, int(n))
}

func (s *stmt) text(i int32) string { return string(s.raw(i)) }

// blob is a copy of a column; nil for NULL and for nothing.
func (s *stmt) blob(i int32) []byte { return append([]byte(nil), s.raw(i)...) }

package sqlitestore

import (
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// faults is what the file layer "faulty" does to the log (FILE-wal). It is the
// real layer underneath, so that what SQLite makes of an error is SQLite's.
var faults struct {
	once        sync.Once
	realOpen    uintptr
	realMethods sqlite3.Tsqlite3_io_methods
	logMethods  uintptr // C memory: realMethods with our write and sync

	write atomic.Int32 // an errno: writes to the log fail with it
	sync  atomic.Int32 // an errno: syncs of the log fail with it
	syncs atomic.Int64 // syncs of the log so far
}

func cfunc[T any](f T) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f T }{f})) }

func call[T any](p uintptr) T { return *(*T)(unsafe.Pointer(&struct{ uintptr }{p})) }

// faultyVFS registers the layer and returns its name.
func faultyVFS() string {
	faults.once.Do(func() {
		tls := libc.NewTLS()
		if sqlite3.Xsqlite3_initialize(tls) != 0 {
			panic("sqlite3_initialize")
		}
		p := libc.Xmalloc(tls, 512)
		v := (*sqlite3.Tsqlite3_vfs)(pointer(p))
		*v = *(*sqlite3.Tsqlite3_vfs)(pointer(sqlite3.Xsqlite3_vfs_find(tls, 0)))
		v.FzName, _ = libc.CString("faulty")
		faults.realOpen = v.FxOpen
		v.FxOpen = cfunc(faultyOpen)
		faults.logMethods = libc.Xmalloc(tls, 512)
		if sqlite3.Xsqlite3_vfs_register(tls, p, 0) != 0 {
			panic("sqlite3_vfs_register")
		}
	})
	faults.write.Store(0)
	faults.sync.Store(0)
	return "faulty"
}

var faultyMu sync.Mutex

func faultyOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := call[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](faults.realOpen)(tls, vfs, name, file, flags, out)
	if rc != 0 || name == 0 || !strings.HasSuffix(libc.GoString(name), "-wal") {
		return rc
	}
	f := (*sqlite3.Tsqlite3_file)(pointer(file))
	faultyMu.Lock()
	defer faultyMu.Unlock()
	if faults.realMethods.FxSync == 0 {
		faults.realMethods = *(*sqlite3.Tsqlite3_io_methods)(pointer(f.FpMethods))
		m := (*sqlite3.Tsqlite3_io_methods)(pointer(faults.logMethods))
		*m = faults.realMethods
		m.FxWrite, m.FxSync = cfunc(faultyWrite), cfunc(faultySync)
	}
	f.FpMethods = faults.logMethods
	return rc
}

func setErrno(tls *libc.TLS, errno int32) { *(*int32)(pointer(libc.X__errno_location(tls))) = errno }

func faultyWrite(tls *libc.TLS, file, buf uintptr, n int32, at int64) int32 {
	if e := faults.write.Load(); e != 0 {
		setErrno(tls, e)
		if e == int32(syscall.ENOSPC) {
			return sqlite3.SQLITE_FULL
		}
		return sqlite3.SQLITE_IOERR_WRITE
	}
	return call[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](faults.realMethods.FxWrite)(tls, file, buf, n, at)
}

func faultySync(tls *libc.TLS, file uintptr, flags int32) int32 {
	faults.syncs.Add(1)
	if e := faults.sync.Load(); e != 0 {
		setErrno(tls, e)
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	return call[func(*libc.TLS, uintptr, int32) int32](faults.realMethods.FxSync)(tls, file, flags)
}

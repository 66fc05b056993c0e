package sqlitestore

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"fencepost/keystore"
)

// A log that cannot grow fails each step of an operation with proof that nothing
// was written, and service resumes when there is room.
func TestDiskFull(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		t.Run(errno.Error(), func(t *testing.T) {
			s := openWith(t, Options{Path: newPath(t), vfs: faultyVFS()})
			id := keystore.ID{Scope: "a", Key: "k"}
			full := func(do func() (keystore.Reply, error)) {
				t.Helper()
				faults.write.Store(int32(errno))
				_, err := do()
				nothingWritten(t, err)
				faults.write.Store(0)
			}
			insert := reservation(t, id)
			full(func() (keystore.Reply, error) { return s.Insert(t.Context(), insert) })
			get(t, s, id, keystore.NotFound)
			rep, err := s.Insert(t.Context(), insert)
			r := written(t, rep, err)

			w := mark(t, r)
			full(func() (keystore.Reply, error) { return s.Swap(t.Context(), w) })
			if v := get(t, s, id, keystore.Found).Record.Version; v != 1 {
				t.Fatalf("version %d", v)
			}
			rep, err = s.Swap(t.Context(), w)
			r = written(t, rep, err)

			w = complete(t, r, body200, time.Hour)
			full(func() (keystore.Reply, error) { return s.Swap(t.Context(), w) })
			if g := get(t, s, id, keystore.Found); g.Record.Version != 2 || g.Body != nil {
				t.Fatalf("version %d, body %q", g.Record.Version, g.Body)
			}
			rep, err = s.Swap(t.Context(), w)
			written(t, rep, err)
			mustClose(t, s)
			sound(t, s.opts.Path)
		})
	}
}

// Many writers and a disk that fills up and empties: whatever was reported as
// written is there, and whatever was proved not written is not.
func TestDiskFullUnderLoad(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t), vfs: faultyVFS()})
	var mu sync.Mutex
	fate := map[keystore.ID]bool{}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 16 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := keystore.ID{Scope: "a", Key: randomKey()}
				rep, err := s.Insert(t.Context(), reservation(t, id))
				if err != nil && !errors.Is(err, keystore.ErrNotWritten) {
					t.Error(err)
				}
				mu.Lock()
				fate[id] = err == nil && rep.Result == keystore.Written
				mu.Unlock()
			}
		})
	}
	for range 20 {
		time.Sleep(5 * time.Millisecond)
		faults.write.Store(int32(syscall.ENOSPC))
		time.Sleep(2 * time.Millisecond)
		faults.write.Store(0)
	}
	close(stop)
	wg.Wait()
	lost, yes := 0, 0
	for id, there := range fate {
		want := keystore.NotFound
		if there {
			want = keystore.Found
			yes++
		} else {
			lost++
		}
		get(t, s, id, want)
	}
	t.Logf("%d written, %d refused", yes, lost)
}

// After a sync or a write that failed for no lack of room, nobody knows what
// the disk holds: the caller is not told that nothing was written, and the store
// refuses everything else.
func TestFailedCommitStopsTheStore(t *testing.T) {
	for name, fault := range map[string]func(int32){"sync": faults.sync.Store, "write": faults.write.Store} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, Options{Path: newPath(t), vfs: faultyVFS()})
			before, id := keystore.ID{Scope: "a", Key: "before"}, keystore.ID{Scope: "a", Key: "k"}
			flow(t, s, before, body200)
			fault(int32(syscall.EIO))
			_, err := s.Insert(t.Context(), reservation(t, id))
			if err == nil || errors.Is(err, keystore.ErrNotWritten) {
				t.Fatalf("an open commit reports %v", err)
			}
			fault(0)
			_, err = s.Insert(t.Context(), reservation(t, id))
			nothingWritten(t, err)
			says(t, err, "opened anew")
			for _, call := range []func() error{
				func() error { _, err := s.Get(t.Context(), before); return err },
				func() error { _, err := s.Lease(t.Context(), "a", "r"); return err },
				func() error { _, err := s.List(t.Context(), keystore.Query{State: keystore.Completed}); return err },
				func() error { _, err := s.Insert(t.Context(), reservation(t, before)); return err },
				func() error { _, err := s.Delete(t.Context(), before, 3); return err },
			} {
				nothingWritten(t, call())
			}
			if f, err := s.Check(t.Context()); err != nil || len(f) != 1 || !f[0].Fatal {
				t.Fatalf("check: %+v %v", f, err)
			}
			syncs := faults.syncs.Load()
			mustClose(t, s)
			if faults.syncs.Load() != syncs {
				t.Error("a failed sync was tried again")
			}
			s = openWith(t, Options{Path: s.opts.Path})
			get(t, s, before, keystore.Found)
			reserve(t, s, keystore.ID{Scope: "a", Key: "after"})
			mustClose(t, s)
			sound(t, s.opts.Path)
		})
	}
}

// One sync a commit, of the log, before anybody is answered.
func TestEveryWriteIsSynced(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t), vfs: faultyVFS()})
	before, commits := faults.syncs.Load(), s.writer.commits.Load()
	for range 20 {
		reserve(t, s, keystore.ID{Scope: "a", Key: randomKey()})
	}
	if n, c := faults.syncs.Load()-before, s.writer.commits.Load()-commits; c != 20 || n < 20 {
		t.Fatalf("%d syncs for %d commits of 20 writes", n, c)
	}
}

package sqlitestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fencepost/keystore"
)

// ledgerBytes is a closed ledger of n completed operations.
func ledgerBytes(t *testing.T, n int) []byte {
	t.Helper()
	s := openWith(t, Options{Path: newPath(t)})
	for i := range n {
		flow(t, s, keystore.ID{Scope: "a", Key: fmt.Sprint("k", i)}, body200)
	}
	mustClose(t, s)
	b, err := os.ReadFile(s.opts.Path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	good := ledgerBytes(t, 50)
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	foreign := func() []byte {
		path := newPath(t)
		put(t, path, nil)
		c := other(t, path)
		if err := c.exec("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1); PRAGMA application_id = 77"); err != nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(path)
		return b
	}
	for name, test := range map[string]struct {
		file []byte
		say  []string
	}{
		"text":           {[]byte(strings.Repeat("not a database\n", 1000)), []string{"not a SQLite file", "name another"}},
		"header flipped": {change(func(b []byte) []byte { b[3] ^= 0xff; return b }), []string{"not a SQLite file", "backup"}},
		"schema flipped": {change(func(b []byte) []byte { copy(b[100:], "garbage!"); return b }), []string{"damaged", "backup", "UNKNOWN"}},
		"truncated":      {change(func(b []byte) []byte { return b[:len(b)/2/4096*4096] }), []string{"damaged", "backup"}},
		"cut in a page":  {change(func(b []byte) []byte { return b[:3*4096+100] }), []string{"damaged", "backup"}},
		"another's":      {foreign(), []string{"not a Fencepost ledger", "name another"}},
		"later version":  {change(func(b []byte) []byte { binary.BigEndian.PutUint32(b[60:], schemaVersion+1); return b }), []string{"later version", "run that version"}},
		"no version":     {change(func(b []byte) []byte { binary.BigEndian.PutUint32(b[60:], 0); return b }), []string{"schema version 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			put(t, path, test.file)
			_, err := Open(t.Context(), Options{Path: path, Logger: quiet()})
			says(t, err, append(test.say, path)...)
			if b, _ := os.ReadFile(path); !bytes.Equal(b, test.file) {
				t.Error("a file that was refused was changed")
			}
			// The lock is free again.
			put(t, path, good)
			os.Remove(path + "-wal")
			os.Remove(path + "-shm")
			get(t, openWith(t, Options{Path: path}), keystore.ID{Scope: "a", Key: "k7"}, keystore.Found)
		})
	}
}

// Damage in a page that Open does not look at is found when it is read: an
// error for that operation, never half a record, and the others go on.
func TestDamagedPage(t *testing.T) {
	good := ledgerBytes(t, 300)
	pages := len(good) / 4096
	fine := 0
	step := 7
	if raceOn {
		step = 29
	}
	for page := 2; page < pages; page += step {
		b := bytes.Clone(good)
		for i := range 600 {
			b[page*4096+i] ^= 0x5a
		}
		path := newPath(t)
		put(t, path, b)
		s, err := Open(t.Context(), Options{Path: path, Logger: quiet(), Timeout: 2 * time.Second})
		if err != nil {
			says(t, err, "damaged", "backup")
			continue
		}
		for i := range 300 {
			id := keystore.ID{Scope: "a", Key: fmt.Sprint("k", i)}
			g, err := s.Get(t.Context(), id)
			switch {
			case err != nil:
				nothingWritten(t, err)
			case g.Result == keystore.Found && g.Record.Version == 3 && g.Record.ID == id:
				fine++
			}
		}
		s.Close()
	}
	if fine == 0 {
		t.Error("no record can be read whatever page is damaged")
	}
}

// A log that was cut leaves the last commit that is whole.
func TestTruncatedLog(t *testing.T) {
	path := newPath(t)
	s := openWith(t, Options{Path: path})
	for i := range 20 {
		flow(t, s, keystore.ID{Scope: "a", Key: fmt.Sprint("k", i)}, body200)
	}
	db, err1 := os.ReadFile(path)
	wal, err2 := os.ReadFile(path + "-wal")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for cut := range 12 {
		copied := newPath(t)
		put(t, copied, db)
		put(t, copied+"-wal", wal[:len(wal)*cut/12])
		s, err := Open(t.Context(), Options{Path: copied, Logger: quiet()})
		if err != nil {
			// A checkpoint may have moved pages of the rest already.
			says(t, err, "damaged")
			continue
		}
		for i := range 20 {
			rep, err := s.Get(t.Context(), keystore.ID{Scope: "a", Key: fmt.Sprint("k", i)})
			if err != nil {
				t.Fatal(err)
			}
			if rep.Result == keystore.Found && rep.Record.State == keystore.Completed && string(rep.Body) != string(body200) {
				t.Fatalf("half a record: %+v", rep)
			}
		}
		mustClose(t, s)
		sound(t, copied)
	}
}

func TestEmptyFileIsNew(t *testing.T) {
	path := newPath(t)
	put(t, path, nil)
	s := openWith(t, Options{Path: path})
	reserve(t, s, keystore.ID{Scope: "a", Key: "k"})
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, bad := range []struct {
		path string
		say  string
	}{
		{"", "no file name"}, {".", "folder"}, {dir, "folder"}, {"missing/ledger.db", "does not exist; create it"},
		{"nul\x00byte", "cannot open"}, {"/dev/null", "not a regular file"},
	} {
		_, err := Open(t.Context(), Options{Path: bad.path})
		says(t, err, bad.say)
	}
	if err := os.Symlink("nowhere", "dangling"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Options{Path: "dangling"})
	says(t, err, "leads nowhere")

	for _, name := range []string{"relative", "with space", "q?mode=memory", "p%41", "#hash", ":memory:", "file:x", "é\n"} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, Options{Path: name})
			r := flow(t, s, keystore.ID{Scope: "a", Key: "k"}, body200)
			mustClose(t, s)
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if g := get(t, openWith(t, Options{Path: filepath.Join(dir, name)}), r.ID, keystore.Found); g.Record.Version != 3 {
				t.Fatalf("%+v", g)
			}
		})
	}
}

func TestModes(t *testing.T) {
	for _, mask := range []int{0o022, 0, 0o077} {
		old := syscall.Umask(mask)
		s := openWith(t, Options{Path: newPath(t)})
		flow(t, s, keystore.ID{Scope: "a", Key: "k"}, body200)
		syscall.Umask(old)
		for _, end := range []string{"", "-wal", "-shm", ".lock"} {
			fi, err := os.Stat(s.opts.Path + end)
			if err != nil {
				t.Fatal(err)
			}
			if m := fi.Mode().Perm(); m != 0o600 {
				t.Errorf("umask %03o: %s has mode %o", mask, fi.Name(), m)
			}
		}
		mustClose(t, s)
	}
}

// Whoever moves or deletes the file of a running ledger takes what is written
// from then on with it. The store notices and stops.
func TestFileTakenAway(t *testing.T) {
	for _, end := range []string{"", "-wal"} {
		s := openWith(t, Options{Path: newPath(t)})
		if err := os.Rename(s.opts.Path+end, s.opts.Path+".moved"); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		for s.failure() == nil && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
		_, err := s.Insert(t.Context(), reservation(t, keystore.ID{Scope: "a", Key: "k"}))
		nothingWritten(t, err)
		says(t, err, "moved or deleted")
		if f, err := s.Check(t.Context()); err != nil || len(f) != 1 || !f[0].Fatal {
			t.Fatalf("%+v %v", f, err)
		}
		s.Close()
	}
}

// A failed Open leaves nothing behind that the next one stumbles over.
func TestFailedOpenLeavesNoFile(t *testing.T) {
	path := newPath(t)
	_, err := Open(t.Context(), Options{Path: path, vfs: "no such layer", Logger: quiet()})
	says(t, err, path)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v", err)
	}
}

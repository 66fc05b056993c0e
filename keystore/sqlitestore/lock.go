package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// ErrInUse says that another process has the ledger.
var ErrInUse = errors.New("in use by another process")

// hold is what keeps other processes out: locks that go with the process,
// however it ends.
type hold struct{ files []*os.File }

// resolve returns the one name that every way to the file leads to. Two names
// of one ledger would be two locks.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot open the ledger %s: its folder does not exist; create it", path)
	} else if err != nil {
		return "", fmt.Errorf("cannot open the ledger %s: %w", path, err)
	}
	path = filepath.Join(dir, filepath.Base(path))
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil
	case err != nil:
		return "", fmt.Errorf("cannot open the ledger %s: %w", path, err)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return "", fmt.Errorf("cannot open the ledger %s: it is a symbolic link that leads nowhere (%w)", path, err)
		}
		if fi, err = os.Stat(target); err != nil {
			return "", fmt.Errorf("cannot open the ledger %s: %w", path, err)
		}
		path = target
	}
	if fi.IsDir() {
		return "", fmt.Errorf("cannot open the ledger %s: it is a folder; name a file in it", path)
	}
	if !fi.Mode().IsRegular() {
		return "", fmt.Errorf("cannot open the ledger %s: it is not a regular file", path)
	}
	return path, nil
}

// take locks FILE.lock, creates FILE where there is none, and on Linux locks
// FILE too, so that a hard link or a deleted FILE.lock lets nobody in. (SQLite's
// own locks are of another kind there; elsewhere the two may meet.)
func take(path string) (h *hold, created bool, err error) {
	held := &hold{}
	defer func() {
		if err != nil {
			held.release()
		}
	}()
	if err := held.lock(path+".lock", path); err != nil {
		return nil, false, err
	}
	// Created here rather than by SQLite so that nobody else can ever read it.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		created = true
		err = f.Close()
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot open the ledger %s: %w", path, err)
	}
	if runtime.GOOS == "linux" {
		if err := held.lock(path, path); err != nil {
			return nil, false, err
		}
	}
	return held, created, nil
}

func (h *hold) lock(name, ledger string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("cannot open the ledger %s: it cannot be written; check the permissions of the file and its folder (%w)", ledger, err)
	} else if err != nil {
		return fmt.Errorf("cannot open the ledger %s: %w", ledger, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("the ledger %s is %w; a SQLite ledger serves one process, several share a Redis ledger", ledger, ErrInUse)
		}
		return fmt.Errorf("cannot lock the ledger %s: %w", ledger, err)
	}
	h.files = append(h.files, f)
	return nil
}

// release comes after SQLite has closed the file: closing any handle of it
// drops the process's locks on it.
func (h *hold) release() {
	for _, f := range h.files {
		f.Close()
	}
}

package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

const busyCode = sqlite3.SQLITE_BUSY

const (
	// checkpointEvery is the pause between two background checkpoints.
	checkpointEvery = 200 * time.Millisecond
	// restartPages is how far the log may grow before the writer restarts it
	// (4 KiB pages: 32 MiB).
	restartPages = 8192
	// restartWait bounds how long the writer waits for readers of the old log.
	restartWait = 50 * time.Millisecond
	// restartPause follows a restart that a reader prevented, so that a
	// forgotten sqlite3 shell costs room and not time.
	restartPause = 2 * time.Second
)

// maintain moves the log into the file in the background, and asks the writer
// to restart the log when it has grown too long: under steady load no
// background checkpoint ever finds a moment to do that. It also looks whether
// the files are still the ones that were opened.
func (w *writer) maintain() {
	t := time.NewTicker(checkpointEvery)
	defer t.Stop()
	for tick := 0; ; tick++ {
		select {
		case <-w.quit:
			return
		case <-t.C:
		}
		if w.s.failure() != nil {
			continue
		}
		if tick%5 == 0 {
			if err := w.s.files.same(); err != nil {
				w.s.breakDown(err)
				continue
			}
		}
		if !w.dirty.Swap(false) {
			continue
		}
		pages, _, err := w.s.side.checkpoint(sqlite3.SQLITE_CHECKPOINT_PASSIVE)
		if err != nil && primary(err) != busyCode {
			w.s.opts.Logger.Warn("a checkpoint of the ledger failed; its log grows until one succeeds", "error", err)
			w.dirty.Store(true)
			continue
		}
		if pages > restartPages {
			w.long.Store(true)
		}
	}
}

// restart empties the log, between two transactions.
func (w *writer) restart() {
	if time.Now().Before(w.patient) {
		return
	}
	w.l.c.busy(restartWait)
	defer w.l.c.busy(w.s.opts.Timeout / 2)
	if pages, _, err := w.l.c.checkpoint(sqlite3.SQLITE_CHECKPOINT_RESTART); err != nil {
		w.patient = time.Now().Add(restartPause)
		w.s.opts.Logger.Warn("the ledger's log could not be restarted and grows; another program may be reading the ledger", "error", err, "pages", pages)
	}
}

// files are the identities of the files that are open.
type files struct {
	names []string
	infos []os.FileInfo
}

func (f *files) remember(path string) error {
	for _, name := range []string{path, path + "-wal"} {
		fi, err := os.Stat(name)
		if err != nil {
			return err
		}
		f.names, f.infos = append(f.names, name), append(f.infos, fi)
	}
	return nil
}

// same reports an error when a file was deleted, moved or replaced: writes to
// it would be lost with the next start.
func (f *files) same() error {
	for i, name := range f.names {
		fi, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("%s was moved or deleted while it was open: %w", name, err)
		}
		if !os.SameFile(fi, f.infos[i]) {
			return errors.New(name + " was replaced while it was open")
		}
	}
	return nil
}

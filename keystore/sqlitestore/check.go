package sqlitestore

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"

	"fencepost/keystore"
)

// lowDisk is the free space below which an operator is told.
const lowDisk = 256 << 20

// Check implements keystore.Store: a real commit through the writer, and a look
// at the files and the disk.
func (s *Store) Check(ctx context.Context) ([]keystore.Finding, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	if err := s.failure(); err != nil {
		return []keystore.Finding{{Fatal: true, Message: err.Error()}}, nil
	}
	if err := s.files.same(); err != nil {
		s.breakDown(err)
		return []keystore.Finding{{Fatal: true, Message: err.Error()}}, nil
	}
	j := newJob(func(s *Store, l *ledger, j *job) error { return l.saveClock(s.now()) })
	settled, err := s.writer.submit(ctx, j)
	if settled {
		j.recycle()
	}
	if err != nil {
		return nil, err
	}
	var findings []keystore.Finding
	var fs syscall.Statfs_t
	if syscall.Statfs(filepath.Dir(s.opts.Path), &fs) == nil {
		if free := fs.Bavail * uint64(fs.Bsize); free < lowDisk {
			findings = append(findings, keystore.Finding{Message: fmt.Sprintf("only %d MiB are free where the ledger is (%s); when the disk is full nothing more is sent", free>>20, s.opts.Path)})
		}
	}
	return findings, nil
}

package sqlitestore

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/keystore"
)

// maxBatch bounds how many writes share one commit.
const maxBatch = 512

// maxQueue bounds how many writes wait; past it a caller waits to be let in.
const maxQueue = 4096

// writer is the one goroutine that writes.
type writer struct {
	s     *Store
	l     *ledger
	queue chan *job
	quit  chan struct{} // closed: finish
	gone  chan struct{} // closed: finished
	batch []*job
	works sync.WaitGroup

	dirty   atomic.Bool // something was written since the last checkpoint
	long    atomic.Bool // the log has grown past its bound
	patient time.Time   // until then the log is not restarted

	commits, writes atomic.Int64
}

func newWriter(s *Store, l *ledger) *writer {
	return &writer{s: s, l: l, queue: make(chan *job, maxQueue), quit: make(chan struct{}), gone: make(chan struct{})}
}

func (w *writer) start() {
	w.works.Go(w.run)
	w.works.Go(w.maintain)
}

// stop serves whoever got in and ends the writer.
func (w *writer) stop() {
	close(w.quit)
	w.works.Wait()
}

func (w *writer) run() {
	defer close(w.gone)
	for {
		select {
		case j := <-w.queue:
			w.serve(j)
		case <-w.quit:
			for {
				select {
				case j := <-w.queue:
					w.serve(j)
				default:
					return
				}
			}
		}
	}
}

// serve runs first and everything that queued in one transaction. The jobs are
// taken only after it began: as long as another program has the file locked,
// their callers can still leave with nothing written.
func (w *writer) serve(first *job) {
	if w.long.Swap(false) {
		w.restart()
	}
	err := w.begin()
	// Callers that the last commit answered are about to bring their next write.
	// Letting them run first makes for fewer and larger commits.
	for n := -1; n < len(w.queue) && n < maxBatch; {
		n = len(w.queue)
		runtime.Gosched()
	}
	w.batch = w.batch[:0]
	for j := first; j != nil; {
		if j.fate.CompareAndSwap(jobWaiting, jobTaken) {
			w.batch = append(w.batch, j)
		}
		j = nil
		if len(w.batch) < maxBatch {
			select {
			case j = <-w.queue:
			default:
			}
		}
	}
	if err == nil {
		err = w.transact(w.batch)
	}
	w.conclude(w.batch, err)
}

// conclude answers the callers of a batch. When a job or the lack of room failed
// it, the jobs are run one by one, so that one bad write takes no other down.
func (w *writer) conclude(batch []*job, err error) {
	var lost *commitError
	if err != nil && len(batch) > 1 && !errors.As(err, &lost) && w.s.failure() == nil && primary(err) != busyCode {
		for i := range batch {
			one := batch[i : i+1]
			if err = w.begin(); err == nil {
				err = w.transact(one)
			}
			w.conclude(one, err)
		}
		return
	}
	for _, j := range batch {
		if j.err == nil {
			j.err = err
		}
		j.done <- struct{}{}
	}
}

func (w *writer) begin() error {
	if err := w.s.failure(); err != nil {
		return err
	}
	if err := w.l.begin.run(); err != nil {
		return notWritten(err)
	}
	return nil
}

// transact runs a batch in the open transaction and ends it. Only what it
// returns as an error concerns the whole batch.
func (w *writer) transact(batch []*job) error {
	for _, j := range batch {
		w.l.wrote = false
		j.result, j.met, j.metBody, j.metLease = 0, row{}, nil, keystore.Lease{} // of an earlier run
		j.err = j.do(w.s, w.l, j)
		if j.err == nil {
			continue
		}
		j.err = notWritten(j.err)
		if w.l.wrote {
			w.rollback()
			return j.err
		}
	}
	saved := w.s.clock.saved
	if now := w.s.now(); now >= saved+clockStep {
		if err := w.l.saveClock(now); err != nil {
			w.rollback()
			return notWritten(err)
		}
		saved = now
	}
	w.commits.Add(1)
	w.writes.Add(int64(len(batch)))
	if err := w.l.commit.run(); err != nil {
		w.rollback()
		if noRoom(err) && w.s.failure() == nil {
			return notWritten(err)
		}
		w.s.breakDown(err)
		return &commitError{err}
	}
	w.s.clock.saved = saved
	w.dirty.Store(true)
	return nil
}

// rollback undoes the open transaction. SQLite has undone it by itself on some
// errors.
func (w *writer) rollback() {
	if !w.l.c.inTransaction() {
		return
	}
	if err := w.l.rollback.run(); err != nil && w.l.c.inTransaction() {
		w.s.breakDown(fmt.Errorf("a rollback failed: %w", err))
	}
}

// failure returns why the store refuses everything, or nil.
func (s *Store) failure() error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// breakDown makes the store refuse everything from now on.
func (s *Store) breakDown(err error) {
	err = notWritten(fmt.Errorf("the ledger stopped and must be opened anew (restart Fencepost when the disk is well): %w", err))
	if s.broken.CompareAndSwap(nil, &err) {
		s.opts.Logger.Error("the ledger stopped", "error", err)
	}
}

package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxBatch bounds how many writes share one commit.
const maxBatch = 512

// maxQueue bounds how many writes wait; past it a caller waits to be let in.
const maxQueue = 4096

// restartPages is how far the log may grow before the writer restarts it
// (4 KiB pages: 32 MiB).
const restartPages = 8192

// job is one write on its way. do runs inside the transaction; its effects count
// only after the commit.
type job struct {
	ctx   context.Context
	do    func(*statements) error
	err   error
	done  chan struct{}
	state atomic.Int32
}

// The states of a job: who may still change its fate.
const (
	jobWaiting  = iota
	jobTaken    // the writer has it
	jobGivenUp  // its caller left before that: it will not be run
	jobFinished // the writer is done with it
)

// writer is the one goroutine that writes.
type writer struct {
	s     *Store
	conn  *sql.Conn
	st    *statements
	queue chan *job
	quit  chan struct{}
	done  sync.WaitGroup
	dirty atomic.Bool // something was written since the last checkpoint
	long  atomic.Bool // the log has grown past its bound
	batch []*job
}

func newWriter(ctx context.Context, s *Store) (*writer, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	st, err := prepare(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	w := &writer{s: s, conn: conn, st: st, queue: make(chan *job, maxQueue), quit: make(chan struct{})}
	w.done.Go(w.run)
	w.done.Go(w.checkpoint)
	return w, nil
}

// submit runs do in the next transaction and returns when it is committed. The
// error says whether it is known that nothing was written.
func (w *writer) submit(ctx context.Context, do func(*statements) error) error {
	s := w.s
	if s.closed.Load() {
		return errClosed
	}
	if err := s.failure(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return notWritten(err)
	}
	j := &job{ctx: ctx, do: do, done: make(chan struct{})}
	select {
	case w.queue <- j:
	case <-ctx.Done():
		return notWritten(ctx.Err())
	case <-w.quit:
		return errClosed
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
	}
	if j.state.CompareAndSwap(jobWaiting, jobGivenUp) {
		return notWritten(ctx.Err())
	}
	// The writer has it. One commit is a matter of milliseconds; where it is not,
	// the caller must not be kept for ever.
	t := time.NewTimer(s.opts.Timeout)
	defer t.Stop()
	select {
	case <-j.done:
		return j.err
	case <-t.C:
		return fmt.Errorf("sqlite ledger: a commit takes longer than %v", s.opts.Timeout)
	}
}

func (w *writer) run() {
	for {
		select {
		case j := <-w.queue:
			w.collect(j)
			w.commit(w.batch)
		case <-w.quit:
			// Whoever got in before the door closed is still served.
			for {
				select {
				case j := <-w.queue:
					w.collect(j)
					w.commit(w.batch)
				default:
					return
				}
			}
		}
	}
}

// collect takes first and everything that queued while the last commit ran.
func (w *writer) collect(first *job) {
	w.batch = w.batch[:0]
	for j := first; ; {
		if j.state.CompareAndSwap(jobWaiting, jobTaken) {
			w.batch = append(w.batch, j)
		}
		if len(w.batch) >= maxBatch {
			return
		}
		select {
		case j = <-w.queue:
		default:
			return
		}
	}
}

// commit runs a batch in one transaction. When a job fails, the transaction is
// undone and the jobs are run one by one, so that one bad write takes no other
// down with it.
func (w *writer) commit(batch []*job) {
	if len(batch) == 0 {
		return
	}
	if w.long.Swap(false) {
		w.restart()
	}
	if err := w.transaction(batch); err != nil {
		var lost *commitError
		if len(batch) > 1 && !errors.As(err, &lost) && w.s.failure() == nil {
			for i := range batch {
				w.commit(batch[i : i+1 : i+1])
			}
			return
		}
		for _, j := range batch {
			j.err = err
		}
	}
	for _, j := range batch {
		j.state.Store(jobFinished)
		close(j.done)
	}
}

// commitError is a commit that failed: it may have happened.
type commitError struct{ err error }

func (e *commitError) Error() string {
	return "sqlite ledger: a commit failed and may have happened all the same: " + e.err.Error()
}
func (e *commitError) Unwrap() error { return e.err }

func (w *writer) transaction(batch []*job) error {
	if err := w.s.failure(); err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := w.st.begin.ExecContext(ctx); err != nil {
		return notWritten(err)
	}
	for _, j := range batch {
		if err := j.do(w.st); err != nil {
			if _, rerr := w.st.rollback.ExecContext(ctx); rerr != nil && w.inTransaction() {
				w.s.breakDown(fmt.Errorf("a rollback failed: %w", rerr))
			}
			return notWritten(err)
		}
	}
	if _, err := w.st.commit.ExecContext(ctx); err != nil {
		_, _ = w.st.rollback.ExecContext(ctx)
		if unwritable(err) && !w.inTransaction() {
			return notWritten(err)
		}
		w.s.breakDown(err)
		return &commitError{err}
	}
	w.dirty.Store(true)
	return nil
}

// inTransaction reports whether the connection still has one open: SQLite rolls
// back by itself on some errors, and a second rollback then fails harmlessly.
func (w *writer) inTransaction() bool {
	if _, err := w.st.begin.ExecContext(context.Background()); err != nil {
		return true
	}
	_, err := w.st.rollback.ExecContext(context.Background())
	return err != nil
}

// checkpoint moves the log into the file in the background, and asks the writer
// to restart the log when it has grown too long: under steady load no
// background checkpoint ever finds a moment to do that.
func (w *writer) checkpoint() {
	ctx := context.Background()
	t := time.NewTicker(checkpointEvery)
	defer t.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-t.C:
		}
		if !w.dirty.Swap(false) || w.s.failure() != nil {
			continue
		}
		var busy, pages, moved int
		if err := w.s.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &moved); err != nil {
			w.s.opts.Logger.Warn("a checkpoint of the ledger failed; its log grows until one succeeds", "error", err)
			continue
		}
		if pages > restartPages {
			w.long.Store(true)
		}
	}
}

// restart empties the log, between two transactions.
func (w *writer) restart() {
	var busy, pages, moved int
	if err := w.conn.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(RESTART)").Scan(&busy, &pages, &moved); err != nil {
		w.s.opts.Logger.Warn("the ledger's log could not be restarted", "error", err)
	}
}

func (w *writer) stop() {
	close(w.quit)
	w.done.Wait()
}

func (w *writer) close() {
	w.st.close()
	w.conn.Close()
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
	err = notWritten(fmt.Errorf("the ledger stopped after a failed commit and must be opened anew (restart Fencepost when the disk is well): %w", err))
	if s.broken.CompareAndSwap(nil, &err) {
		s.opts.Logger.Error("the ledger stopped", "error", err)
	}
}

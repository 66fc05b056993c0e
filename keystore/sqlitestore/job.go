package sqlitestore

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"fencepost/keystore"
)

// job is one write on its way. It holds copies of everything it needs: its
// caller may have left, and may be using its slices again, when it is run.
type job struct {
	// do runs inside the transaction; its effects, the results below included,
	// count only after the commit.
	do func(*Store, *ledger, *job) error

	id                    keystore.ID
	version               uint64
	writer                string
	state                 keystore.State
	deadlineIn, expiresIn time.Duration
	rec, body             []byte
	bodyOp                keystore.BodyOp
	guarded               bool
	guard                 keystore.Guard
	lease                 keystore.LeaseWrite

	result   keystore.Result
	now      keystore.Instant
	met      row    // the record that was there, where the result shows it
	metBody  []byte // its body
	metLease keystore.Lease
	err      error

	fate  atomic.Int32
	done  chan struct{} // gets one token when err and the results are final
	timer *time.Timer
}

// The fates of a job: who may still change it.
const (
	jobWaiting = iota
	jobTaken   // the writer has it
	jobGivenUp // its caller left before that: it will not be run
)

var jobs = sync.Pool{New: func() any {
	j := &job{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	j.timer.Stop()
	return j
}}

func newJob(do func(*Store, *ledger, *job) error) *job {
	j := jobs.Get().(*job)
	j.do = do
	return j
}

// newWriteJob takes from w what the writer needs.
func newWriteJob(do func(*Store, *ledger, *job) error, w *keystore.Write) *job {
	j := newJob(do)
	r := &w.Record
	j.id, j.version, j.writer, j.state = r.ID, r.Version, r.Writer, r.State
	j.deadlineIn, j.expiresIn = w.DeadlineIn, w.ExpiresIn
	j.rec = keystore.Encode(r)
	j.bodyOp = w.BodyOp
	if w.BodyOp == keystore.BodySet {
		j.body = bytes.Clone(w.Body)
	}
	if w.Guard != nil {
		j.guarded, j.guard = true, *w.Guard
	}
	return j
}

// recycle is for jobs that the writer is done with.
func (j *job) recycle() {
	*j = job{done: j.done, timer: j.timer}
	jobs.Put(j)
}

// submit runs a job in the next transaction and returns when it is committed.
// The error says whether it is known that nothing was written. settled is true
// when the writer will not touch the job again.
func (w *writer) submit(ctx context.Context, j *job) (settled bool, err error) {
	s := w.s
	if err := s.refuses(ctx); err != nil {
		return true, err
	}
	j.timer.Reset(s.opts.Timeout)
	defer j.timer.Stop()
	select {
	case w.queue <- j:
	default:
		select {
		case w.queue <- j:
		case <-ctx.Done():
			return true, notWritten(ctx.Err())
		case <-j.timer.C:
			return true, notWritten(late(s.opts.Timeout))
		case <-w.gone:
			return true, errClosed
		}
	}
	var cause error
	select {
	case <-j.done:
		return true, j.err
	case <-ctx.Done():
		cause = notWritten(ctx.Err())
	case <-j.timer.C:
		cause = notWritten(late(s.opts.Timeout))
	case <-w.gone:
		// It came in behind the writer's last look at the queue.
		cause = errClosed
	}
	if j.fate.CompareAndSwap(jobWaiting, jobGivenUp) {
		return false, cause
	}
	// The writer has it. One commit is a matter of milliseconds; where it is not,
	// the caller must not be kept for ever.
	j.timer.Reset(s.opts.Timeout)
	select {
	case <-j.done:
		return true, j.err
	case <-j.timer.C:
		return false, fmt.Errorf("sqlite ledger: a commit takes longer than %v; whether it happened is not known", s.opts.Timeout)
	}
}

package keystore

import "context"

// Store is a versioned compare-and-swap over records, with a clock of its own.
// It is dumb: which change is allowed was decided by [Next] before.
//
// Atomicity. Each call is one atomic step: the version, the guard, the record,
// its body and every index the store keeps change together or not at all.
//
// Durability. When a write is reported [Written], a crash of this process, of
// the store or (as far as the store's own settings promise) of the machine does
// not undo it.
//
// Self-recognition. A write repeated with the same Writer after a lost reply
// reports Written for its own earlier success.
//
// Clock. Every reply carries the store's time of the call in Now, and every
// instant in a record is by that clock.
//
// Blocking. A store bounds its own blocking, also under a context that has no
// deadline.
//
// Errors. An error means that it is not known whether the write happened,
// unless errors.Is(err, [ErrNotWritten]). Everything else a caller may expect
// is a [Result].
//
// Concurrency. All methods may be called at once from any goroutine. A store
// keeps no reference to the slices it is given and returns none that it keeps.
type Store interface {
	// Insert writes a first version: Written, or Exists with the current record
	// and, where that record is Completed with a retained body, its Body. LeaseLost
	// when the guard fails and there is no record; a record that exists is
	// returned whatever the guard says.
	Insert(ctx context.Context, w Write) (Reply, error)

	// Swap writes the next version: Written, Conflict with the current record,
	// NotFound, or LeaseLost when the version fits but the guard does not.
	Swap(ctx context.Context, w Write) (Reply, error)

	// Get reads: Found with the record and its Body if there is one, or NotFound.
	Get(ctx context.Context, id ID) (Reply, error)

	// Delete forgets a record at exactly this version: Written, Conflict or
	// NotFound.
	Delete(ctx context.Context, id ID, version uint64) (Reply, error)

	// List pages through records, without bodies.
	List(ctx context.Context, q Query) (Page, error)

	// Lease reads the fencing state of a run: Found or NotFound.
	Lease(ctx context.Context, scope, run string) (LeaseReply, error)

	// SwapLease writes the next version of a lease (Version 1 inserts): Written,
	// Conflict with the current one, or LeaseLost (see LeaseWrite.MustBeLive).
	SwapLease(ctx context.Context, w LeaseWrite) (LeaseReply, error)

	// Exclusive reports that this process is the ledger's only one: every other
	// owner found in it is gone.
	Exclusive() bool

	// Check verifies that the ledger can keep the promise right now, by a real
	// round trip. It returns what an operator should know, worst first.
	Check(ctx context.Context) ([]Finding, error)

	// Close waits for writes under way and lets go of the ledger.
	Close() error
}

// Result is what came of a call that did not fail.
type Result uint8

// The results.
const (
	// NoResult is the zero value; no store returns it.
	NoResult Result = iota
	// Written: the write happened, now or in an earlier try of the same writer.
	Written
	// Exists: an insert found a record.
	Exists
	// Conflict: the version was not the expected one.
	Conflict
	// LeaseLost: the guard did not hold. Nothing was written.
	LeaseLost
	// Found: a read found what it looked for.
	Found
	// NotFound: there is no such record or lease.
	NotFound
)

// Reply is what a store knows after a call.
type Reply struct {
	Result Result
	// Record is the record as it stands: after the write, or as found.
	Record Record
	// Body is the stored response body, where the method says so.
	Body []byte
	// Now is the store's clock at the call.
	Now Instant
}

// Query selects records. Results come oldest first by the instant that the
// selection is about.
type Query struct {
	// Scope narrows to one scope; "" means all.
	Scope string
	// State selects by stored state, ordered by UpdatedAt. With StateNone, Due
	// selects records whose Expires has been reached, ordered by Expires.
	State State
	Due   bool
	// Before, when set, keeps records whose UpdatedAt is earlier.
	Before Instant
	// Limit bounds the page; zero means 100. No store returns more than 1000.
	Limit int
	// Cursor continues after an earlier page with the same selection.
	Cursor string
}

// Page is one page of a list.
type Page struct {
	Records []Record
	// Next continues the list, or is "" at its end.
	Next string
	Now  Instant
}

// Finding is something about the ledger that an operator should know.
type Finding struct {
	// Fatal means that the promise cannot be kept: do not start, do not send.
	Fatal bool
	// Message says what is so, what it means and what to do.
	Message string
}

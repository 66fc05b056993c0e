package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"fencepost/keystore"
)

// Fake is a store in memory. The zero value is not usable; see [NewFake].
//
// It polices its caller: a write that no transition could have made (a version
// that jumps, a missing writer, a changed fingerprint or operation) panics,
// because a real store would accept it.
type Fake struct {
	// Sole is what Exclusive reports.
	Sole bool

	mu      sync.Mutex
	fault   func(Call) Fault
	now     keystore.Instant
	clock   func() keystore.Instant
	records map[keystore.ID]entry
	leases  map[[2]string]keystore.Lease
	calls   map[string]int
	closed  bool
}

type entry struct {
	cols keystore.Columns
	blob []byte
	body []byte
}

// Call describes a call to a fault function.
type Call struct {
	// Op is the method's name in lower case: insert, swap, get, delete, list,
	// lease, swaplease, check.
	Op string
	ID keystore.ID
	// State is the state that an insert or swap would reach.
	State keystore.State
}

// Fault says what goes wrong.
type Fault struct {
	// Err is returned to the caller, nil for no fault.
	Err error
	// Applied says that the write happens all the same: the reply is lost.
	Applied bool
}

// NewFake returns an empty store whose clock stands still until Advance moves it.
func NewFake() *Fake {
	return &Fake{
		now:     keystore.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		records: make(map[keystore.ID]entry),
		leases:  make(map[[2]string]keystore.Lease),
		calls:   make(map[string]int),
	}
}

// NewTickingFake returns an empty store whose clock is time.Now, which inside a
// testing/synctest bubble is the bubble's.
func NewTickingFake() *Fake {
	f := NewFake()
	f.clock = func() keystore.Instant { return keystore.InstantOf(time.Now()) }
	f.now = 0
	return f
}

// SetFault makes every call ask fault what goes wrong with it; nil means
// nothing. It is called without locks held.
func (f *Fake) SetFault(fault func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// Advance moves the store's clock.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// Calls returns how often each method was called.
func (f *Fake) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]int, len(f.calls))
	for k, v := range f.calls {
		out[k] = v
	}
	return out
}

// Len returns how many records there are.
func (f *Fake) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.records)
}

func (f *Fake) instant() keystore.Instant {
	if f.clock != nil {
		return f.clock() + f.now
	}
	return f.now
}

// begin counts the call and asks for a fault. When it returns a nil error the
// lock is held.
func (f *Fake) begin(ctx context.Context, c Call) (lost error, err error) {
	f.mu.Lock()
	f.calls[c.Op]++
	fault := f.fault
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("fake %s: %w: %w", c.Op, err, keystore.ErrNotWritten)
	}
	if fault != nil {
		if x := fault(c); x.Err != nil {
			if !x.Applied {
				return nil, x.Err
			}
			lost = x.Err
		}
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", keystore.ErrClosed, keystore.ErrNotWritten)
	}
	return lost, nil
}

func (f *Fake) decode(id keystore.ID, e entry) keystore.Record {
	r, err := keystore.Decode(id, e.cols, e.blob)
	if err != nil {
		panic(err)
	}
	return r
}

// police panics on a write that keystore.Next cannot have made.
func police(w keystore.Write, old *keystore.Record) {
	r := w.Record
	switch {
	case r.Writer == "":
		panic("storetest: a write without a writer")
	case r.Scope == "" || r.Key == "":
		panic("storetest: a write without scope or key")
	case r.State < keystore.Reserved || r.State > keystore.Abandoned:
		panic("storetest: a write without a state")
	case old == nil:
		return
	case r.Operation != old.Operation || r.Fingerprint != old.Fingerprint:
		panic(fmt.Sprintf("storetest: a write changes the identity of %v", r.ID))
	case old.State.Settled() && r.State != old.State:
		panic(fmt.Sprintf("storetest: a write leaves the terminal state %v of %v", old.State, r.ID))
	}
}

func (f *Fake) put(w keystore.Write, body []byte) keystore.Record {
	now := f.instant()
	r := w.Stamped(now)
	switch w.BodyOp {
	case keystore.BodySet:
		body = slices.Clone(w.Body)
	case keystore.BodyDrop:
		body = nil
	}
	f.records[r.ID] = entry{
		cols: keystore.Columns{Version: r.Version, Writer: r.Writer, State: r.State, Updated: now, Deadline: r.Deadline, Expires: r.Expires},
		blob: keystore.Encode(&w.Record), body: body,
	}
	return r
}

// holds evaluates a guard, raising an external token.
func (f *Fake) holds(scope string, g *keystore.Guard) bool {
	if g == nil {
		return true
	}
	k := [2]string{scope, g.Run}
	l, ok := f.leases[k]
	if !g.External {
		return ok && l.Token == g.Token && l.Live(f.instant())
	}
	if ok && g.Token < l.Token {
		return false
	}
	if !ok || g.Token > l.Token {
		f.leases[k] = keystore.Lease{Scope: scope, Run: g.Run, Owner: "external", Token: g.Token, AcquiredAt: f.instant(), Version: l.Version + 1}
	}
	return true
}

// Insert implements keystore.Store.
func (f *Fake) Insert(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	lost, err := f.begin(ctx, Call{"insert", w.Record.ID, w.Record.State})
	if err != nil {
		return keystore.Reply{}, err
	}
	defer f.mu.Unlock()
	rep := keystore.Reply{Now: f.instant()}
	if e, ok := f.records[w.Record.ID]; ok {
		rep.Record = f.decode(w.Record.ID, e)
		if e.cols.Writer == w.Record.Writer && e.cols.Version == w.Record.Version {
			rep.Result = keystore.Written
		} else {
			rep.Result = keystore.Exists
			if rep.Record.State == keystore.Completed {
				rep.Body = slices.Clone(e.body)
			}
		}
		return rep, lost
	}
	police(w, nil)
	if !f.holds(w.Record.Scope, w.Guard) {
		rep.Result = keystore.LeaseLost
		return rep, lost
	}
	rep.Result, rep.Record = keystore.Written, f.put(w, nil)
	return rep, lost
}

// Swap implements keystore.Store.
func (f *Fake) Swap(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	lost, err := f.begin(ctx, Call{"swap", w.Record.ID, w.Record.State})
	if err != nil {
		return keystore.Reply{}, err
	}
	defer f.mu.Unlock()
	rep := keystore.Reply{Now: f.instant()}
	e, ok := f.records[w.Record.ID]
	if !ok {
		rep.Result = keystore.NotFound
		return rep, lost
	}
	cur := f.decode(w.Record.ID, e)
	rep.Record = cur
	switch {
	case e.cols.Version == w.Record.Version && e.cols.Writer == w.Record.Writer:
		rep.Result = keystore.Written
	case e.cols.Version+1 != w.Record.Version:
		rep.Result = keystore.Conflict
	case !f.holds(w.Record.Scope, w.Guard):
		rep.Result = keystore.LeaseLost
	default:
		police(w, &cur)
		rep.Result, rep.Record = keystore.Written, f.put(w, e.body)
	}
	return rep, lost
}

// Get implements keystore.Store.
func (f *Fake) Get(ctx context.Context, id keystore.ID) (keystore.Reply, error) {
	_, err := f.begin(ctx, Call{Op: "get", ID: id})
	if err != nil {
		return keystore.Reply{}, err
	}
	defer f.mu.Unlock()
	e, ok := f.records[id]
	if !ok {
		return keystore.Reply{Result: keystore.NotFound, Now: f.instant()}, nil
	}
	return keystore.Reply{Result: keystore.Found, Record: f.decode(id, e), Body: slices.Clone(e.body), Now: f.instant()}, nil
}

// Delete implements keystore.Store.
func (f *Fake) Delete(ctx context.Context, id keystore.ID, version uint64) (keystore.Reply, error) {
	lost, err := f.begin(ctx, Call{Op: "delete", ID: id})
	if err != nil {
		return keystore.Reply{}, err
	}
	defer f.mu.Unlock()
	rep := keystore.Reply{Now: f.instant()}
	e, ok := f.records[id]
	if !ok {
		rep.Result = keystore.NotFound
		return rep, lost
	}
	rep.Record = f.decode(id, e)
	if e.cols.Version != version {
		rep.Result = keystore.Conflict
		return rep, lost
	}
	delete(f.records, id)
	rep.Result = keystore.Written
	return rep, lost
}

// List implements keystore.Store. Its cursor is the last record's sort key.
func (f *Fake) List(ctx context.Context, q keystore.Query) (keystore.Page, error) {
	_, err := f.begin(ctx, Call{Op: "list"})
	if err != nil {
		return keystore.Page{}, err
	}
	defer f.mu.Unlock()
	now := f.instant()
	type row struct {
		sort string
		rec  keystore.Record
	}
	var rows []row
	for id, e := range f.records {
		at := e.cols.Updated
		switch {
		case q.Scope != "" && id.Scope != q.Scope,
			!q.Due && e.cols.State != q.State,
			q.Due && !e.cols.Expires.Reached(now),
			q.Before != 0 && e.cols.Updated >= q.Before:
			continue
		}
		if q.Due {
			at = e.cols.Expires
		}
		sort := fmt.Sprintf("%020d\x00%s\x00%s", at, id.Scope, id.Key)
		if sort > q.Cursor {
			rows = append(rows, row{sort, f.decode(id, e)})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.sort, b.sort) })
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	p := keystore.Page{Now: now}
	for i, r := range rows {
		if i == limit {
			p.Next = rows[i-1].sort
			break
		}
		p.Records = append(p.Records, r.rec)
	}
	return p, nil
}

// Lease implements keystore.Store.
func (f *Fake) Lease(ctx context.Context, scope, run string) (keystore.LeaseReply, error) {
	_, err := f.begin(ctx, Call{Op: "lease"})
	if err != nil {
		return keystore.LeaseReply{}, err
	}
	defer f.mu.Unlock()
	l, ok := f.leases[[2]string{scope, run}]
	if !ok {
		return keystore.LeaseReply{Result: keystore.NotFound, Now: f.instant()}, nil
	}
	return keystore.LeaseReply{Result: keystore.Found, Lease: l, Now: f.instant()}, nil
}

// SwapLease implements keystore.Store.
func (f *Fake) SwapLease(ctx context.Context, w keystore.LeaseWrite) (keystore.LeaseReply, error) {
	lost, err := f.begin(ctx, Call{Op: "swaplease"})
	if err != nil {
		return keystore.LeaseReply{}, err
	}
	defer f.mu.Unlock()
	if strings.TrimSpace(w.Lease.Writer) == "" {
		panic("storetest: a lease write without a writer")
	}
	now := f.instant()
	k := [2]string{w.Lease.Scope, w.Lease.Run}
	cur, ok := f.leases[k]
	rep := keystore.LeaseReply{Lease: cur, Now: now}
	switch {
	case ok && cur.Version == w.Lease.Version && cur.Writer == w.Lease.Writer:
		rep.Result = keystore.Written
	case cur.Version+1 != w.Lease.Version:
		rep.Result = keystore.Conflict
	case w.MustBeLive && !cur.Live(now):
		rep.Result = keystore.LeaseLost
	default:
		l := w.Lease
		l.ExpiresAt = now.Add(w.TTL)
		if l.AcquiredAt == keystore.StampNow {
			l.AcquiredAt = now
		}
		f.leases[k] = l
		rep.Result, rep.Lease = keystore.Written, l
	}
	return rep, lost
}

// Exclusive implements keystore.Store.
func (f *Fake) Exclusive() bool { return f.Sole }

// Check implements keystore.Store.
func (f *Fake) Check(ctx context.Context) ([]keystore.Finding, error) {
	_, err := f.begin(ctx, Call{Op: "check"})
	if err != nil {
		return nil, err
	}
	f.mu.Unlock()
	return nil, nil
}

// Close implements keystore.Store.
func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

package sqlitestore

import (
	"context"

	"fencepost/keystore"
)

// leaseQuery reads a lease, in the order of runLease.
const leaseQuery = "SELECT owner, token, acquired, expires, version, writer FROM leases WHERE scope = ?1 AND run = ?2"

// runLease reads a lease; ok is false where there is none.
func runLease(st *stmt, scope, run string) (l keystore.Lease, ok bool, err error) {
	st.bindID(keystore.ID{Scope: scope, Key: run}, 0)
	if ok, err = st.step(); !ok {
		return keystore.Lease{}, false, err
	}
	l = keystore.Lease{
		Scope: scope, Run: run, Owner: st.text(0), Token: uint64(st.int(1)), AcquiredAt: keystore.Instant(st.int(2)),
		ExpiresAt: keystore.Instant(st.int(3)), Version: uint64(st.int(4)), Writer: st.text(5),
	}
	st.reset()
	return l, true, nil
}

// holds evaluates a job's guard, raising an external token that is new.
func (l *ledger) holds(j *job) (bool, error) {
	g := &j.guard
	cur, ok, err := runLease(l.lease, j.id.Scope, g.Run)
	if err != nil {
		return false, err
	}
	if !g.External {
		return ok && cur.Token == g.Token && cur.Live(j.now), nil
	}
	if ok && g.Token <= cur.Token {
		return g.Token == cur.Token, nil
	}
	return true, l.putLease(ok, keystore.Lease{Scope: j.id.Scope, Run: g.Run, Owner: "external", Token: g.Token, AcquiredAt: j.now, Version: cur.Version + 1})
}

func (l *ledger) putLease(exists bool, v keystore.Lease) error {
	st := l.insertLease
	if exists {
		st = l.updateLease
	}
	st.bindID(keystore.ID{Scope: v.Scope, Key: v.Run}, len(v.Owner)+len(v.Writer))
	st.bindText(3, v.Owner)
	st.bindInt(4, int64(v.Token))
	st.bindInt(5, int64(v.AcquiredAt))
	st.bindInt(6, int64(v.ExpiresAt))
	st.bindInt(7, int64(v.Version))
	st.bindText(8, v.Writer)
	_, err := l.change(st)
	return err
}

// Lease implements keystore.Store.
func (s *Store) Lease(ctx context.Context, scope, run string) (keystore.LeaseReply, error) {
	rep := keystore.LeaseReply{Result: keystore.NotFound}
	err := s.reading(ctx, func(r *reader) error {
		l, ok, err := runLease(r.lease, scope, run)
		if ok {
			rep.Result, rep.Lease = keystore.Found, l
		}
		return err
	})
	if err != nil {
		return keystore.LeaseReply{}, err
	}
	rep.Now = s.now()
	return rep, nil
}

// SwapLease implements keystore.Store.
func (s *Store) SwapLease(ctx context.Context, w keystore.LeaseWrite) (keystore.LeaseReply, error) {
	j := newJob(swapLease)
	j.lease = w
	settled, err := s.writer.submit(ctx, j)
	rep := keystore.LeaseReply{}
	if err == nil {
		rep = keystore.LeaseReply{Result: j.result, Lease: j.metLease, Now: j.now}
	}
	if settled {
		j.recycle()
	}
	return rep, err
}

func swapLease(s *Store, l *ledger, j *job) error {
	w := &j.lease
	j.now = s.now()
	cur, ok, err := runLease(l.lease, w.Lease.Scope, w.Lease.Run)
	if err != nil {
		return err
	}
	j.metLease = cur
	switch {
	case ok && cur.Version == w.Lease.Version && cur.Writer == w.Lease.Writer:
		j.result = keystore.Written
		return nil
	case cur.Version+1 != w.Lease.Version:
		j.result = keystore.Conflict
		return nil
	case w.MustBeLive && !cur.Live(j.now):
		j.result = keystore.LeaseLost
		return nil
	}
	next := w.Lease
	next.ExpiresAt = j.now.Add(w.TTL)
	if next.AcquiredAt == keystore.StampNow {
		next.AcquiredAt = j.now
	}
	j.result, j.metLease = keystore.Written, next
	if err := l.putLease(ok, next); err != nil {
		return err
	}
	// A renewal leaves no other trace of its moment: without this one, a wall
	// clock that was set back would make the lease live for longer.
	return l.saveClock(j.now)
}

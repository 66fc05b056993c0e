package sqlitestore

import (
	"context"
	"database/sql"
	"errors"

	"fencepost/keystore"
)

// runLease reads a lease inside the transaction; ok is false where there is none.
func runLease(r row, scope, run string) (l keystore.Lease, ok bool, err error) {
	l = keystore.Lease{Scope: scope, Run: run}
	var token int64
	err = r.Scan(&l.Owner, &token, &l.AcquiredAt, &l.ExpiresAt, &l.Version, &l.Writer)
	if errors.Is(err, sql.ErrNoRows) {
		return keystore.Lease{}, false, nil
	}
	l.Token = uint64(token)
	return l, err == nil, err
}

// holds evaluates a guard, raising an external token that is new.
func (st *statements) holds(scope string, g *keystore.Guard, now keystore.Instant) (bool, error) {
	l, ok, err := runLease(st.lease.QueryRow(scope, g.Run), scope, g.Run)
	if err != nil {
		return false, err
	}
	if !g.External {
		return ok && l.Token == g.Token && l.Live(now), nil
	}
	if ok && g.Token <= l.Token {
		return g.Token == l.Token, nil
	}
	return true, st.putLease(ok, keystore.Lease{Scope: scope, Run: g.Run, Owner: "external", Token: g.Token, AcquiredAt: now, Version: l.Version + 1})
}

func (st *statements) putLease(exists bool, l keystore.Lease) error {
	var err error
	if exists {
		_, err = st.updateLease.Exec(l.Owner, int64(l.Token), l.AcquiredAt, l.ExpiresAt, l.Version, l.Writer, l.Scope, l.Run)
	} else {
		_, err = st.insertLease.Exec(l.Scope, l.Run, l.Owner, int64(l.Token), l.AcquiredAt, l.ExpiresAt, l.Version, l.Writer)
	}
	return err
}

// Lease implements keystore.Store.
func (s *Store) Lease(ctx context.Context, scope, run string) (keystore.LeaseReply, error) {
	if s.closed.Load() {
		return keystore.LeaseReply{}, errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	rep := keystore.LeaseReply{Now: s.now(), Result: keystore.NotFound}
	l, ok, err := runLease(s.reads.QueryRowContext(ctx, "SELECT owner, token, acquired, expires, version, writer FROM leases WHERE scope = ? AND run = ?", scope, run), scope, run)
	if err != nil {
		return keystore.LeaseReply{}, notWritten(err)
	}
	if ok {
		rep.Result, rep.Lease = keystore.Found, l
	}
	return rep, nil
}

// SwapLease implements keystore.Store.
func (s *Store) SwapLease(ctx context.Context, w keystore.LeaseWrite) (keystore.LeaseReply, error) {
	var rep keystore.LeaseReply
	err := s.writer.submit(ctx, func(st *statements) error {
		now := s.now()
		cur, ok, err := runLease(st.lease.QueryRow(w.Lease.Scope, w.Lease.Run), w.Lease.Scope, w.Lease.Run)
		if err != nil {
			return err
		}
		rep = keystore.LeaseReply{Now: now, Lease: cur}
		switch {
		case ok && cur.Version == w.Lease.Version && cur.Writer == w.Lease.Writer:
			rep.Result = keystore.Written
			return nil
		case cur.Version+1 != w.Lease.Version:
			rep.Result = keystore.Conflict
			return nil
		case w.MustBeLive && !cur.Live(now):
			rep.Result = keystore.LeaseLost
			return nil
		}
		l := w.Lease
		l.ExpiresAt = now.Add(w.TTL)
		if l.AcquiredAt == keystore.StampNow {
			l.AcquiredAt = now
		}
		rep.Result, rep.Lease = keystore.Written, l
		return st.putLease(ok, l)
	})
	if err != nil {
		return keystore.LeaseReply{}, err
	}
	return rep, nil
}

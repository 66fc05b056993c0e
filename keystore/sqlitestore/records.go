package sqlitestore

import (
	"context"
	"database/sql"
	"errors"

	"fencepost/keystore"
)

// row is anything that scans: a row of a query or one of many.
type row interface{ Scan(...any) error }

// scanRecord reads the columns of a record, and its row id.
func scanRecord(r row) (int64, keystore.Record, error) {
	var (
		rowid int64
		id    keystore.ID
		c     keystore.Columns
		rec   sql.RawBytes
		blob  []byte
		err   error
	)
	if _, many := r.(*sql.Rows); many {
		err = r.Scan(&rowid, &id.Scope, &id.Key, &c.Version, &c.Writer, &c.State, &c.Updated, &c.Deadline, &c.Expires, &rec)
		blob = rec
	} else {
		err = r.Scan(&rowid, &id.Scope, &id.Key, &c.Version, &c.Writer, &c.State, &c.Updated, &c.Deadline, &c.Expires, &blob)
	}
	if err != nil {
		return 0, keystore.Record{}, err
	}
	out, err := keystore.Decode(id, c, blob)
	return rowid, out, err
}

// found reads a record inside the transaction; ok is false where there is none.
func (st *statements) found(id keystore.ID) (rowid int64, r keystore.Record, ok bool, err error) {
	rowid, r, err = scanRecord(st.find.QueryRow(id.Scope, id.Key))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, r, false, nil
	}
	return rowid, r, err == nil, err
}

// storedBody reads a body; nil where there is none.
func storedBody(r row) ([]byte, error) {
	var b []byte
	err := r.Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return b, err
}

// Insert implements keystore.Store.
func (s *Store) Insert(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	rec := keystore.Encode(&w.Record)
	var rep keystore.Reply
	err := s.writer.submit(ctx, func(st *statements) error {
		rep = keystore.Reply{Now: s.now()}
		if w.Guard != nil {
			// The guard matters only where there is no record; it may raise a token,
			// so it is not asked before that is known.
			_, cur, ok, err := st.found(w.Record.ID)
			if err != nil {
				return err
			}
			if !ok {
				held, err := st.holds(w.Record.Scope, w.Guard, rep.Now)
				if err != nil {
					return err
				}
				if !held {
					rep.Result = keystore.LeaseLost
					return nil
				}
			} else {
				rep.Record = cur
			}
		}
		r := w.Stamped(rep.Now)
		res, err := st.insert.Exec(r.Scope, r.Key, r.Version, r.Writer, r.State, r.UpdatedAt, r.Deadline, r.Expires, rec)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n == 1 {
			rep.Result, rep.Record = keystore.Written, r
			if w.BodyOp == keystore.BodySet {
				rowid, err := res.LastInsertId()
				if err != nil {
					return err
				}
				_, err = st.setBody.Exec(rowid, w.Body)
				return err
			}
			return nil
		}
		rowid, cur, _, err := st.found(r.ID)
		if err != nil {
			return err
		}
		rep.Record = cur
		if cur.Version == r.Version && cur.Writer == r.Writer {
			rep.Result = keystore.Written
			return nil
		}
		rep.Result = keystore.Exists
		if cur.State == keystore.Completed {
			rep.Body, err = storedBody(st.body.QueryRow(rowid))
		}
		return err
	})
	if err != nil {
		return keystore.Reply{}, err
	}
	return rep, nil
}

// Swap implements keystore.Store.
func (s *Store) Swap(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	rec := keystore.Encode(&w.Record)
	var rep keystore.Reply
	err := s.writer.submit(ctx, func(st *statements) error {
		rep = keystore.Reply{Now: s.now()}
		if w.Guard != nil {
			if done, err := st.guarded(&rep, &w); done || err != nil {
				return err
			}
		}
		r := w.Stamped(rep.Now)
		var rowid int64
		err := st.update.QueryRow(r.Version, r.Writer, r.State, r.UpdatedAt, r.Deadline, r.Expires, rec, r.Scope, r.Key, r.Version-1).Scan(&rowid)
		if errors.Is(err, sql.ErrNoRows) {
			return st.missed(&rep, &w)
		}
		if err != nil {
			return err
		}
		rep.Result, rep.Record = keystore.Written, r
		switch w.BodyOp {
		case keystore.BodySet:
			_, err = st.setBody.Exec(rowid, w.Body)
		case keystore.BodyDrop:
			_, err = st.dropBody.Exec(rowid)
		}
		return err
	})
	if err != nil {
		return keystore.Reply{}, err
	}
	return rep, nil
}

// guarded decides a guarded swap that does not get to write: done is true when
// the version does not fit, or when the guard does not hold.
func (st *statements) guarded(rep *keystore.Reply, w *keystore.Write) (done bool, err error) {
	_, cur, ok, err := st.found(w.Record.ID)
	if err != nil {
		return false, err
	}
	if !ok || cur.Version != w.Record.Version-1 {
		return true, st.missed(rep, w)
	}
	held, err := st.holds(w.Record.Scope, w.Guard, rep.Now)
	if err != nil || held {
		return false, err
	}
	rep.Result, rep.Record = keystore.LeaseLost, cur
	return true, nil
}

// missed says why a swap found no row to change.
func (st *statements) missed(rep *keystore.Reply, w *keystore.Write) error {
	_, cur, ok, err := st.found(w.Record.ID)
	if err != nil {
		return err
	}
	rep.Record = cur
	switch {
	case !ok:
		rep.Result = keystore.NotFound
	case cur.Version == w.Record.Version && cur.Writer == w.Record.Writer:
		rep.Result = keystore.Written
	default:
		rep.Result = keystore.Conflict
	}
	return nil
}

// Delete implements keystore.Store.
func (s *Store) Delete(ctx context.Context, id keystore.ID, version uint64) (keystore.Reply, error) {
	var rep keystore.Reply
	err := s.writer.submit(ctx, func(st *statements) error {
		rep = keystore.Reply{Now: s.now()}
		rowid, cur, ok, err := st.found(id)
		if err != nil {
			return err
		}
		rep.Record = cur
		switch {
		case !ok:
			rep.Result = keystore.NotFound
			return nil
		case cur.Version != version:
			rep.Result = keystore.Conflict
			return nil
		}
		rep.Result = keystore.Written
		if _, err := st.dropBody.Exec(rowid); err != nil {
			return err
		}
		_, err = st.remove.Exec(rowid)
		return err
	})
	if err != nil {
		return keystore.Reply{}, err
	}
	return rep, nil
}

// Get implements keystore.Store. Record and body are read in one transaction.
func (s *Store) Get(ctx context.Context, id keystore.ID) (keystore.Reply, error) {
	if s.closed.Load() {
		return keystore.Reply{}, errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	rep := keystore.Reply{Now: s.now(), Result: keystore.Found}
	var (
		rowid int64
		c     keystore.Columns
		blob  []byte
	)
	err := s.reads.QueryRowContext(ctx, "SELECT o.id, o.version, o.writer, o.state, o.updated, o.deadline, o.expires, o.rec, b.body FROM ops o LEFT JOIN bodies b ON b.op = o.id WHERE o.scope = ? AND o.key = ?", id.Scope, id.Key).
		Scan(&rowid, &c.Version, &c.Writer, &c.State, &c.Updated, &c.Deadline, &c.Expires, &blob, &rep.Body)
	if errors.Is(err, sql.ErrNoRows) {
		rep.Result = keystore.NotFound
		return rep, nil
	}
	if err != nil {
		return keystore.Reply{}, notWritten(err)
	}
	if rep.Record, err = keystore.Decode(id, c, blob); err != nil {
		return keystore.Reply{}, notWritten(err)
	}
	return rep, nil
}

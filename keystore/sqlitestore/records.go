package sqlitestore

import (
	"context"

	"fencepost/keystore"
)

// Insert implements keystore.Store.
func (s *Store) Insert(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	if s.known.has(w.Record.ID) {
		met, body, err := s.fetch(ctx, w.Record.ID)
		if err != nil {
			return keystore.Reply{}, err
		}
		if met.ok {
			return s.meets(&w, met, body)
		}
	}
	return s.write(ctx, newWriteJob(insertRecord, &w), &w)
}

// meets is the reply to an insert that finds a record.
func (s *Store) meets(w *keystore.Write, met row, body []byte) (keystore.Reply, error) {
	r, err := keystore.Decode(w.Record.ID, met.col, met.rec)
	if err != nil {
		return keystore.Reply{}, notWritten(err)
	}
	rep := keystore.Reply{Result: keystore.Exists, Record: r, Now: s.now()}
	if met.col.Version == w.Record.Version && met.col.Writer == w.Record.Writer {
		rep.Result = keystore.Written
	} else if r.State == keystore.Completed {
		rep.Body = body
	}
	return rep, nil
}

func insertRecord(s *Store, l *ledger, j *job) (err error) {
	j.now = s.now()
	if j.guarded {
		// The guard matters only where there is no record; it may raise a token,
		// so it is not asked before that is known.
		if j.met, err = l.look(j.id); err != nil {
			return err
		}
		if !j.met.ok {
			if held, err := l.holds(j); err != nil {
				return err
			} else if !held {
				j.result = keystore.LeaseLost
				return nil
			}
		}
	}
	if !j.met.ok {
		if fresh, err := l.put(j); err != nil {
			return err
		} else if fresh {
			j.result = keystore.Written
			return l.keep(j)
		}
		// Nothing was changed, so what fails now undoes nobody else's write.
		l.wrote = false
		if j.met, err = l.look(j.id); err != nil {
			return err
		}
	}
	if j.met.col.Version == j.version && j.met.col.Writer == j.writer {
		j.result = keystore.Written
		return nil
	}
	j.result = keystore.Exists
	if j.met.col.State == keystore.Completed {
		j.metBody, err = l.bodyOf(j.met.op)
	}
	return err
}

// Swap implements keystore.Store.
func (s *Store) Swap(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	return s.write(ctx, newWriteJob(swapRecord, &w), &w)
}

func swapRecord(s *Store, l *ledger, j *job) (err error) {
	j.now = s.now()
	if j.guarded {
		if j.met, err = l.look(j.id); err != nil {
			return err
		}
		if !j.met.ok || j.met.col.Version != j.version-1 {
			return l.missed(j)
		}
		if held, err := l.holds(j); err != nil {
			return err
		} else if !held {
			j.result = keystore.LeaseLost
			return nil
		}
	}
	if done, err := l.replace(j); err != nil {
		return err
	} else if !done {
		l.wrote = false
		if j.met, err = l.look(j.id); err != nil {
			return err
		}
		return l.missed(j)
	}
	j.result, j.met = keystore.Written, row{}
	return l.keep(j)
}

// missed says why a swap found no version to follow.
func (l *ledger) missed(j *job) error {
	switch {
	case !j.met.ok:
		j.result = keystore.NotFound
	case j.met.col.Version == j.version && j.met.col.Writer == j.writer:
		j.result = keystore.Written
	default:
		j.result = keystore.Conflict
	}
	return nil
}

// Delete implements keystore.Store.
func (s *Store) Delete(ctx context.Context, id keystore.ID, version uint64) (keystore.Reply, error) {
	j := newJob(deleteRecord)
	j.id, j.version, j.bodyOp = id, version, keystore.BodyDrop
	rep, met, err := s.run(ctx, j)
	if err != nil || !met.ok {
		return rep, err
	}
	rep.Record, err = keystore.Decode(id, met.col, met.rec)
	if err != nil && rep.Result == keystore.Written {
		// Nobody has to be able to read what is gone.
		rep.Record, err = keystore.Record{ID: id, Version: met.col.Version, Writer: met.col.Writer, State: met.col.State}, nil
	}
	if err != nil {
		return keystore.Reply{}, notWritten(err)
	}
	return rep, nil
}

func deleteRecord(s *Store, l *ledger, j *job) (err error) {
	j.now = s.now()
	if j.met, err = l.look(j.id); err != nil {
		return err
	}
	switch {
	case !j.met.ok:
		j.result = keystore.NotFound
		return nil
	case j.met.col.Version != j.version:
		j.result = keystore.Conflict
		return nil
	}
	j.result = keystore.Written
	if err := l.keep(j); err != nil {
		return err
	}
	l.remove.bindInt(1, j.met.op)
	_, err = l.change(l.remove)
	return err
}

// run submits a job and returns what came of it: the reply without its record,
// and the row that was met.
func (s *Store) run(ctx context.Context, j *job) (rep keystore.Reply, met row, err error) {
	settled, err := s.writer.submit(ctx, j)
	if err == nil {
		rep, met = keystore.Reply{Result: j.result, Now: j.now, Body: j.metBody}, j.met
	}
	if settled {
		j.recycle()
	}
	return rep, met, err
}

// write runs a job and makes its reply: the record that was met, or else w's.
func (s *Store) write(ctx context.Context, j *job, w *keystore.Write) (keystore.Reply, error) {
	rep, met, err := s.run(ctx, j)
	if err != nil {
		return keystore.Reply{}, err
	}
	switch {
	case met.ok:
		if rep.Record, err = keystore.Decode(w.Record.ID, met.col, met.rec); err != nil {
			return keystore.Reply{}, damaged(rep.Result, err)
		}
	case rep.Result == keystore.Written:
		rep.Record = w.Stamped(rep.Now)
	}
	if met.ok || rep.Result == keystore.Written {
		s.known.add(w.Record.ID)
	}
	return rep, nil
}

// damaged is the error of a call whose record cannot be read. Where the call
// did write, it must not say that it did not.
func damaged(res keystore.Result, err error) error {
	if res == keystore.Written {
		return err
	}
	return notWritten(err)
}

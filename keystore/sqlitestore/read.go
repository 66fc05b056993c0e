package sqlitestore

import (
	"context"
	"time"

	"fencepost/keystore"
)

// readers are the connections that only read. Each sees the last commit as of
// its statement, and nothing that is not synced.
type readers struct {
	idle    chan *reader
	all     []*reader
	timeout time.Duration
}

type reader struct {
	c          *conn
	get, lease *stmt
}

const readerCount = 4

func newReaders(path, vfs string, timeout time.Duration) (*readers, error) {
	rs := &readers{idle: make(chan *reader, readerCount), timeout: timeout}
	for range readerCount {
		c, err := dial(path, vfs, true, timeout/2)
		if err != nil {
			rs.close()
			return nil, err
		}
		r := &reader{c: c}
		rs.all = append(rs.all, r)
		if err := c.exec("PRAGMA query_only = 1"); err != nil {
			rs.close()
			return nil, err
		}
		// Record and body come from one statement, so from one commit.
		if r.get, err = c.prepare("SELECT " + rowColumns + ", (SELECT body FROM bodies WHERE op = ops.id) FROM ops WHERE scope = ?1 AND key = ?2"); err == nil {
			r.lease, err = c.prepare(leaseQuery)
		}
		if err != nil {
			rs.close()
			return nil, err
		}
		rs.idle <- r
	}
	return rs, nil
}

// close comes when no read is under way.
func (rs *readers) close() {
	for _, r := range rs.all {
		for _, st := range []*stmt{r.get, r.lease} {
			if st != nil {
				st.close()
			}
		}
		r.c.close()
	}
}

// reading runs f with a connection.
func (s *Store) reading(ctx context.Context, f func(*reader) error) error {
	if err := s.refuses(ctx); err != nil {
		return err
	}
	s.busy.RLock()
	defer s.busy.RUnlock()
	if s.closed.Load() {
		return errClosed
	}
	var r *reader
	select {
	case r = <-s.reads.idle:
	default:
		t := time.NewTimer(s.opts.Timeout)
		defer t.Stop()
		select {
		case r = <-s.reads.idle:
		case <-ctx.Done():
			return notWritten(ctx.Err())
		case <-t.C:
			return notWritten(late(s.opts.Timeout))
		}
	}
	defer func() { s.reads.idle <- r }()
	if err := f(r); err != nil {
		return notWritten(err)
	}
	return nil
}

// fetch reads a record and its body.
func (s *Store) fetch(ctx context.Context, id keystore.ID) (met row, body []byte, err error) {
	err = s.reading(ctx, func(r *reader) error {
		r.get.bindID(id, 0)
		ok, err := r.get.step()
		if ok {
			met, body = r.get.row(), r.get.blob(8)
			r.get.reset()
		}
		return err
	})
	return met, body, err
}

// Get implements keystore.Store.
func (s *Store) Get(ctx context.Context, id keystore.ID) (keystore.Reply, error) {
	met, body, err := s.fetch(ctx, id)
	if err != nil {
		return keystore.Reply{}, err
	}
	rep := keystore.Reply{Result: keystore.NotFound, Now: s.now()}
	if !met.ok {
		return rep, nil
	}
	rep.Result, rep.Body = keystore.Found, body
	if rep.Record, err = keystore.Decode(id, met.col, met.rec); err != nil {
		return keystore.Reply{}, notWritten(err)
	}
	return rep, nil
}

package sqlitestore

import (
	"time"

	"fencepost/keystore"
)

// rowColumns are the columns of a record, in the order of stmt.row.
const rowColumns = "id, version, writer, state, updated, deadline, expires, rec"

// row is a record as it lies in the file. It is decoded by whoever asked for
// it, so that a damaged one is that caller's trouble and not the writer's.
type row struct {
	ok  bool // there is one
	op  int64
	col keystore.Columns
	rec []byte
}

// row reads the current row.
func (s *stmt) row() row {
	r := row{ok: true, op: s.int(0), rec: s.blob(7)}
	r.col = keystore.Columns{
		Version: uint64(s.int(1)), Writer: s.text(2), Updated: keystore.Instant(s.int(4)),
		Deadline: keystore.Instant(s.int(5)), Expires: keystore.Instant(s.int(6)),
	}
	// A number too large for a State must not become another state.
	if st := s.int(3); st > 0 && st <= int64(keystore.Abandoned) {
		r.col.State = keystore.State(st)
	}
	return r
}

// ledger is the writer's connection with its statements. Numbers that SQLite
// has no unsigned type for are stored as the signed one with the same bits.
type ledger struct {
	c     *conn
	wrote bool // something was written since the job began
	all   []*stmt

	begin, commit, rollback         *stmt
	insert, find, update, remove    *stmt
	body, setBody, dropBody         *stmt
	lease, insertLease, updateLease *stmt
	setClock                        *stmt
}

func newLedger(c *conn) (*ledger, error) {
	l := &ledger{c: c}
	for _, q := range []struct {
		into **stmt
		text string
	}{
		{&l.begin, "BEGIN IMMEDIATE"},
		{&l.commit, "COMMIT"},
		{&l.rollback, "ROLLBACK"},
		{&l.insert, "INSERT INTO ops (scope, key, version, writer, state, updated, deadline, expires, rec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (scope, key) DO NOTHING"},
		{&l.find, "SELECT " + rowColumns + " FROM ops WHERE scope = ?1 AND key = ?2"},
		{&l.update, "UPDATE ops SET version = ?3, writer = ?4, state = ?5, updated = ?6, deadline = ?7, expires = ?8, rec = ?9 WHERE scope = ?1 AND key = ?2 AND version = ?10"},
		{&l.remove, "DELETE FROM ops WHERE id = ?1"},
		{&l.body, "SELECT body FROM bodies WHERE op = ?1"},
		{&l.setBody, "INSERT INTO bodies (op, body) SELECT id, ?3 FROM ops WHERE scope = ?1 AND key = ?2 ON CONFLICT (op) DO UPDATE SET body = excluded.body"},
		{&l.dropBody, "DELETE FROM bodies WHERE op = (SELECT id FROM ops WHERE scope = ?1 AND key = ?2)"},
		{&l.lease, leaseQuery},
		{&l.insertLease, "INSERT INTO leases (scope, run, owner, token, acquired, expires, version, writer) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"},
		{&l.updateLease, "UPDATE leases SET owner = ?3, token = ?4, acquired = ?5, expires = ?6, version = ?7, writer = ?8 WHERE scope = ?1 AND run = ?2"},
		{&l.setClock, "UPDATE clock SET now = ?1 WHERE id = 1"},
	} {
		s, err := c.prepare(q.text)
		if err != nil {
			l.close()
			return nil, err
		}
		*q.into = s
		l.all = append(l.all, s)
	}
	return l, nil
}

func (l *ledger) close() {
	for _, s := range l.all {
		s.close()
	}
}

// look reads a record's row.
func (l *ledger) look(id keystore.ID) (row, error) {
	return l.find.byID(id)
}

// byID runs a query of rowColumns for one id.
func (s *stmt) byID(id keystore.ID) (row, error) {
	s.bindID(id, 0)
	ok, err := s.step()
	if !ok {
		return row{}, err
	}
	r := s.row()
	s.reset()
	return r, nil
}

// bindID binds scope and key, and makes room for more bytes of values.
func (s *stmt) bindID(id keystore.ID, more int) {
	s.room(len(id.Scope) + len(id.Key) + more)
	s.bindText(1, id.Scope)
	s.bindText(2, id.Key)
}

// bindRecord binds the columns ?1 to ?9 of a job's record at the moment at.
func (s *stmt) bindRecord(j *job, at keystore.Instant) {
	s.bindID(j.id, len(j.writer)+len(j.rec))
	s.bindInt(3, int64(j.version))
	s.bindText(4, j.writer)
	s.bindInt(5, int64(j.state))
	s.bindInt(6, int64(at))
	s.bindInt(7, int64(after(at, j.deadlineIn)))
	s.bindInt(8, int64(after(at, j.expiresIn)))
	s.bindBlob(9, j.rec)
}

// after is how keystore.Write.Stamped places an instant.
func after(at keystore.Instant, d time.Duration) keystore.Instant {
	if d <= 0 {
		return 0
	}
	return at.Add(d)
}

// put inserts the job's record, or does nothing where there is one.
func (l *ledger) put(j *job) (bool, error) {
	l.insert.bindRecord(j, j.now)
	return l.change(l.insert)
}

// replace writes the job's record over its previous version.
func (l *ledger) replace(j *job) (bool, error) {
	l.update.bindRecord(j, j.now)
	l.update.bindInt(10, int64(j.version-1))
	return l.change(l.update)
}

// change runs a statement and reports whether it changed anything.
func (l *ledger) change(s *stmt) (bool, error) {
	l.wrote = true
	if err := s.run(); err != nil {
		return false, err
	}
	return l.c.changes() > 0, nil
}

// keep does what the job says about the body.
func (l *ledger) keep(j *job) error {
	var err error
	switch j.bodyOp {
	case keystore.BodySet:
		l.setBody.bindID(j.id, len(j.body))
		l.setBody.bindBlob(3, j.body)
		_, err = l.change(l.setBody)
	case keystore.BodyDrop:
		l.dropBody.bindID(j.id, 0)
		_, err = l.change(l.dropBody)
	}
	return err
}

// bodyOf reads a body; nil where there is none.
func (l *ledger) bodyOf(op int64) ([]byte, error) {
	l.body.bindInt(1, op)
	ok, err := l.body.step()
	if !ok {
		return nil, err
	}
	b := l.body.blob(0)
	l.body.reset()
	return b, nil
}

// saveClock writes the store's clock.
func (l *ledger) saveClock(now keystore.Instant) error {
	l.setClock.bindInt(1, int64(now))
	_, err := l.change(l.setClock)
	return err
}

package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
)

// columns are the columns of a whole record, in the order of scanRecord.
const columns = "id, scope, key, version, writer, state, updated, deadline, expires, rec"

// statements are the writer's prepared statements.
type statements struct {
	begin, commit, rollback *sql.Stmt

	insert, find, update, remove    *sql.Stmt
	body, setBody, dropBody         *sql.Stmt
	lease, insertLease, updateLease *sql.Stmt
	all                             []*sql.Stmt
}

func prepare(ctx context.Context, c *sql.Conn) (*statements, error) {
	st := &statements{}
	for _, q := range []struct {
		into *(*sql.Stmt)
		text string
	}{
		{&st.begin, "BEGIN IMMEDIATE"},
		{&st.commit, "COMMIT"},
		{&st.rollback, "ROLLBACK"},
		{&st.insert, "INSERT INTO ops (scope, key, version, writer, state, updated, deadline, expires, rec) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, key) DO NOTHING"},
		{&st.find, "SELECT " + columns + " FROM ops WHERE scope = ? AND key = ?"},
		{&st.update, "UPDATE ops SET version = ?, writer = ?, state = ?, updated = ?, deadline = ?, expires = ?, rec = ? WHERE scope = ? AND key = ? AND version = ? RETURNING id"},
		{&st.remove, "DELETE FROM ops WHERE id = ?"},
		{&st.body, "SELECT body FROM bodies WHERE op = ?"},
		{&st.setBody, "INSERT INTO bodies (op, body) VALUES (?, ?) ON CONFLICT (op) DO UPDATE SET body = excluded.body"},
		{&st.dropBody, "DELETE FROM bodies WHERE op = ?"},
		{&st.lease, "SELECT owner, token, acquired, expires, version, writer FROM leases WHERE scope = ? AND run = ?"},
		{&st.insertLease, "INSERT INTO leases (scope, run, owner, token, acquired, expires, version, writer) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"},
		{&st.updateLease, "UPDATE leases SET owner = ?, token = ?, acquired = ?, expires = ?, version = ?, writer = ? WHERE scope = ? AND run = ?"},
	} {
		s, err := c.PrepareContext(ctx, q.text)
		if err != nil {
			st.close()
			return nil, fmt.Errorf("preparing %q: %w", q.text, err)
		}
		*q.into = s
		st.all = append(st.all, s)
	}
	return st, nil
}

func (st *statements) close() {
	for _, s := range st.all {
		s.Close()
	}
}

package sqlitestore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"fencepost/keystore"
)

// cursor is where a page ended: the sort key of its last row.
type cursor struct {
	At    int64
	Scope string
	Op    int64
}

func (c cursor) encode() string {
	b, _ := json.Marshal([]any{c.At, c.Scope, c.Op})
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(s string) (c cursor, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &[]any{&c.At, &c.Scope, &c.Op})
	}
	if err != nil {
		return c, notWritten(fmt.Errorf("the cursor is not one of this ledger's: %w", err))
	}
	return c, nil
}

// listing is the query of a page. Parameters are numbered and all are always
// bound: ?1 state or now, ?2 scope, ?3 before, ?4 to ?6 the cursor, ?7 limit.
//
// TestPlans holds SQLite to the index. Two things are there for it: a scope that
// it knows to be constant makes it sort again, which the plus prevents; and an
// "expires > 0" would start every page at the beginning, instead of the cursor.
func listing(q *keystore.Query) string {
	index, sortBy, where := "ops_by_state", "updated", []string{"state = ?1"}
	if q.State == keystore.StateNone && q.Due {
		index, sortBy, where = "ops_by_expiry", "expires", []string{"expires <> 0", "expires <= ?1"}
	}
	if q.Scope != "" {
		where = append(where, "+scope = ?2")
	}
	if q.Before != 0 {
		where = append(where, "updated < ?3")
	}
	if q.Cursor != "" {
		where = append(where, "("+sortBy+", scope, id) > (?4, ?5, ?6)")
	}
	return "SELECT " + rowColumns + ", scope, key FROM ops INDEXED BY " + index + " WHERE " + strings.Join(where, " AND ") +
		" ORDER BY " + sortBy + ", scope, id LIMIT ?7"
}

// List implements keystore.Store. A record that cannot be read is left out and
// logged: it must not hide the others.
func (s *Store) List(ctx context.Context, q keystore.Query) (keystore.Page, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	var c cursor
	if q.Cursor != "" {
		var err error
		if c, err = decodeCursor(q.Cursor); err != nil {
			return keystore.Page{}, err
		}
	}
	page := keystore.Page{Now: s.now()}
	err := s.reading(ctx, func(r *reader) error {
		st, err := r.c.prepare(listing(&q))
		if err != nil {
			return err
		}
		defer st.close()
		first := int64(q.State)
		if q.State == keystore.StateNone && q.Due {
			first = int64(page.Now)
		}
		st.room(len(q.Scope) + len(c.Scope))
		st.bindInt(1, first)
		st.bindText(2, q.Scope)
		st.bindInt(3, int64(q.Before))
		st.bindInt(4, c.At)
		st.bindText(5, c.Scope)
		st.bindInt(6, c.Op)
		// One row more than asked for tells whether there is another page.
		st.bindInt(7, int64(limit)+1)
		defer s.guardTime(ctx, r.c)()
		for n := 0; ; n++ {
			ok, err := st.step()
			if !ok {
				return err
			}
			if n == limit {
				page.Next = c.encode()
				return nil
			}
			met, id := st.row(), keystore.ID{Scope: st.text(8), Key: st.text(9)}
			c = cursor{At: int64(met.col.Updated), Scope: id.Scope, Op: met.op}
			if q.State == keystore.StateNone && q.Due {
				c.At = int64(met.col.Expires)
			}
			rec, err := keystore.Decode(id, met.col, met.rec)
			if err != nil {
				s.opts.Logger.ErrorContext(ctx, "a record of the ledger cannot be read and is left out of a list", "scope", id.Scope, "key", id.Key, "error", err)
				continue
			}
			page.Records = append(page.Records, rec)
		}
	})
	if err != nil {
		return keystore.Page{}, err
	}
	return page, nil
}

// guardTime interrupts what the connection runs when its time is over, until
// the returned function is called. It does so again and again: SQLite forgets an
// interrupt that comes just before a statement starts.
func (s *Store) guardTime(ctx context.Context, c *conn) (stop func()) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		for {
			c.interrupt()
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() {
		close(over)
		<-ended
		cancel()
	}
}

package sqlitestore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"fencepost/keystore"
)

// cursor is where a page ended: the sort key of its last row.
type cursor struct {
	At    keystore.Instant
	Scope string
	Key   string
}

// encode keeps the instant a number: the wire form of Instant is for people.
func (c cursor) encode() string {
	b, _ := json.Marshal([]any{int64(c.At), c.Scope, c.Key})
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(s string) (cursor, error) {
	var at int64
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &[]any{&at, &c.Scope, &c.Key})
	}
	if err != nil {
		return c, notWritten(fmt.Errorf("the cursor is not one of this ledger's: %w", err))
	}
	c.At = keystore.Instant(at)
	return c, nil
}

// List implements keystore.Store.
func (s *Store) List(ctx context.Context, q keystore.Query) (keystore.Page, error) {
	if s.closed.Load() {
		return keystore.Page{}, errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	page := keystore.Page{Now: s.now()}

	sortBy := "updated"
	var where []string
	var args []any
	if q.Due {
		sortBy = "expires"
		where, args = append(where, "expires > 0 AND expires <= ?"), append(args, page.Now)
	} else {
		where, args = append(where, "state = ?"), append(args, q.State)
	}
	if q.Scope != "" {
		where, args = append(where, "scope = ?"), append(args, q.Scope)
	}
	if q.Before != 0 {
		where, args = append(where, "updated < ?"), append(args, q.Before)
	}
	if q.Cursor != "" {
		c, err := decodeCursor(q.Cursor)
		if err != nil {
			return keystore.Page{}, err
		}
		where, args = append(where, "("+sortBy+", scope, key) > (?, ?, ?)"), append(args, c.At, c.Scope, c.Key)
	}
	// One row more than asked for tells whether there is another page.
	query := "SELECT " + columns + " FROM ops WHERE " + strings.Join(where, " AND ") + " ORDER BY " + sortBy + ", scope, key LIMIT ?"
	rows, err := s.reads.QueryContext(ctx, query, append(args, limit+1)...)
	if err != nil {
		return keystore.Page{}, notWritten(err)
	}
	defer rows.Close()
	for rows.Next() {
		if len(page.Records) == limit {
			last := page.Records[limit-1]
			c := cursor{At: last.UpdatedAt, Scope: last.Scope, Key: last.Key}
			if q.Due {
				c.At = last.Expires
			}
			page.Next = c.encode()
			break
		}
		_, r, err := scanRecord(rows)
		if err != nil {
			return keystore.Page{}, notWritten(err)
		}
		page.Records = append(page.Records, r)
	}
	if err := rows.Err(); err != nil {
		return keystore.Page{}, notWritten(err)
	}
	return page, nil
}

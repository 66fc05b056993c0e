package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"fencepost/keystore"
)

// stateStride keeps the states apart in the index by state: a score is
// state * stateStride + updated. Times stay below it until the year 2527, and
// scores below 2^53.
const stateStride = 1 << 44

// entry is one line of an index.
type entry struct {
	at  int64
	sc  *scope
	key string
}

// compare is the order of a list: by time, scope and key, as the cursor counts.
func (a entry) compare(b entry) int {
	return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.sc.name, b.sc.name), strings.Compare(a.key, b.key))
}

// List implements [keystore.Store]: a merge of the scopes' indexes. Each scope
// is read by itself, so what changes meanwhile may be missing from the page, but
// nothing that stays is lost or repeated.
func (s *Store) List(ctx context.Context, q keystore.Query) (keystore.Page, error) {
	if err := s.enter(); err != nil {
		return keystore.Page{}, err
	}
	defer s.leave()
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	from, err := parseCursor(q.Cursor)
	if err != nil {
		return keystore.Page{}, failed("list", err, true)
	}
	var scopes []*scope
	if q.Scope != "" {
		sc, err := s.scope(q.Scope)
		if err != nil {
			return keystore.Page{}, err
		}
		scopes = []*scope{sc}
	} else {
		if scopes, err = s.allScopes(ctx); err != nil {
			return keystore.Page{}, failed("list", err, true)
		}
	}

	m := &merge{store: s, q: q, limit: limit}
	for _, sc := range scopes {
		m.walks = append(m.walks, newWalk(sc, q, from))
	}
	entries, more, err := m.page(ctx)
	if err != nil {
		return keystore.Page{}, err
	}
	p := keystore.Page{Now: m.now}
	if more {
		p.Next = cursorOf(entries[len(entries)-1])
	}
	if p.Now == 0 { // no scope at all: the clock is still owed
		rep, err := s.look(ctx, s.ledger)
		if err != nil {
			return keystore.Page{}, err
		}
		p.Now = rep.now
	}
	p.Records, err = s.records(ctx, entries, q, p.Now)
	return p, err
}

// records reads the operations of a page and drops what has moved on since its
// line was read.
func (s *Store) records(ctx context.Context, entries []entry, q keystore.Query, now keystore.Instant) ([]keystore.Record, error) {
	got := make([]keystore.Reply, len(entries))
	err := together(len(entries), func(i int) (err error) {
		e := entries[i]
		got[i], err = s.get(ctx, peekScript, e.sc, keystore.ID{Scope: e.sc.name, Key: e.key})
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []keystore.Record
	for _, g := range got {
		r := g.Record
		switch {
		case g.Result != keystore.Found,
			q.Due && !r.Expires.Reached(now),
			!q.Due && r.State != q.State,
			q.Before != 0 && r.UpdatedAt >= q.Before:
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// together runs fn for 0…n-1, many at once: their calls share flights.
func together(n int, fn func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	turns := make(chan struct{}, 64)
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			errs[i] = fn(i)
			<-turns
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// merge reads the indexes of many scopes as one.
type merge struct {
	store *Store
	q     keystore.Query
	limit int
	walks []*walk
	now   keystore.Instant
}

// page returns up to limit entries and whether there are more.
func (m *merge) page(ctx context.Context) ([]entry, bool, error) {
	// Enough for a page in few rounds, without reading a page from every scope.
	chunk := max(2*m.limit/max(len(m.walks), 1), 16)
	var out []entry
	for {
		var dry []*walk
		for _, w := range m.walks {
			if len(w.ahead) == 0 && !w.end {
				dry = append(dry, w)
			}
		}
		err := together(len(dry), func(i int) error { return dry[i].read(ctx, m.store, min(chunk, m.limit+1)) })
		if err != nil {
			return nil, false, err
		}
		for _, w := range dry {
			m.now = max(m.now, w.now)
		}
		// Take the oldest until a walk that may have older ones runs dry.
		for {
			var first *walk
			for _, w := range m.walks {
				if len(w.ahead) == 0 {
					if !w.end {
						first = nil
						break
					}
					continue
				}
				if first == nil || w.ahead[0].compare(first.ahead[0]) < 0 {
					first = w
				}
			}
			if first == nil {
				break
			}
			if len(out) == m.limit {
				return out, true, nil
			}
			out = append(out, first.ahead[0])
			first.ahead = first.ahead[1:]
		}
		done := true
		for _, w := range m.walks {
			done = done && w.end && len(w.ahead) == 0
		}
		if done {
			return out, false, nil
		}
	}
}

// walk reads one scope's index in order.
type walk struct {
	sc   *scope
	due  bool
	base int64  // what a score is above its time
	high string // where the walk ends, for ZRANGEBYSCORE
	// last is the latest entry seen; what is not after it is skipped.
	last  entry
	skip  int // entries to skip at last's time
	ahead []entry
	end   bool
	now   keystore.Instant
}

func newWalk(sc *scope, q keystore.Query, from *position) *walk {
	w := &walk{sc: sc, due: q.Due, high: "now", last: entry{at: 0, sc: &scope{}}}
	if !q.Due {
		w.base = int64(q.State) * stateStride
		w.high = "(" + strconv.FormatInt(w.base+stateStride, 10)
		if q.Before > 0 {
			w.high = "(" + strconv.FormatInt(w.base+int64(q.Before), 10)
		}
	}
	if from != nil {
		w.last = entry{at: from.at, sc: &scope{name: from.scope}, key: from.key}
	}
	return w
}

func (w *walk) read(ctx context.Context, s *Store, n int) error {
	index := w.sc.states
	if w.due {
		index = w.sc.due
	}
	c := s.newCall(w.sc, listScript, index.(string))
	c.with(c, &s.instance, w.base+w.last.at, w.high, w.skip, n)
	c.read, c.size = true, 256
	rep, err := s.run(ctx, c)
	if err != nil {
		return err
	}
	w.now = rep.now
	v := rep.rest
	for i := 0; i+1 < len(v); i += 2 {
		key, ok := v[i].(string)
		score, ok2 := v[i+1].(string)
		f, err := strconv.ParseFloat(score, 64)
		if !ok || !ok2 || err != nil {
			return failed("list", fmt.Errorf("the index %v holds something else", index), true)
		}
		e := entry{at: int64(f) - w.base, sc: w.sc, key: key}
		if e.compare(w.last) > 0 {
			w.ahead = append(w.ahead, e)
		}
	}
	w.end = len(v) < 2*n
	if len(w.ahead) > 0 {
		w.last, w.skip = w.ahead[len(w.ahead)-1], 0
	} else {
		w.skip += len(v) / 2
	}
	return nil
}

// position is where a cursor points: behind this entry.
type position struct {
	at         int64
	scope, key string
}

func cursorOf(e entry) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d/%s/%s", e.at, e.sc.name, e.key))
}

func parseCursor(s string) (*position, error) {
	if s == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	parts := strings.SplitN(string(b), "/", 3)
	if err != nil || len(parts) != 3 {
		return nil, errors.New("the cursor is not one of this ledger")
	}
	at, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || at < 0 || at >= stateStride || !scopeForm.MatchString(parts[1]) {
		return nil, errors.New("the cursor is not one of this ledger")
	}
	return &position{at: at, scope: parts[1], key: parts[2]}, nil
}

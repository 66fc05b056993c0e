package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"fencepost/keystore"
)

// Insert implements [keystore.Store].
func (s *Store) Insert(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	return s.write(ctx, insertScript, &w)
}

// Swap implements [keystore.Store].
func (s *Store) Swap(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	return s.write(ctx, swapScript, &w)
}

func (s *Store) write(ctx context.Context, sp *script, w *keystore.Write) (keystore.Reply, error) {
	if err := s.enter(); err != nil {
		return keystore.Reply{}, err
	}
	defer s.leave()
	sc, err := s.scope(w.Record.Scope)
	if err != nil {
		return keystore.Reply{}, err
	}
	leads := sp == insertScript || w.BeforeSend
	if leads {
		if err := s.mayLead(ctx, sp.name); err != nil {
			return keystore.Reply{}, err
		}
		if err := s.register(ctx, sc); err != nil {
			if bad := s.mistrusted(sp.name, true); bad != nil {
				return keystore.Reply{}, bad
			}
			return keystore.Reply{}, err
		}
	}
	return s.put(ctx, sp, sc, w, leads)
}

// put runs insert.lua or swap.lua.
func (s *Store) put(ctx context.Context, sp *script, sc *scope, w *keystore.Write, leads bool) (keystore.Reply, error) {
	r := &w.Record
	c := s.newCall(sc, sp, sc.ops+r.Key)
	c.leads = leads
	c.wait = w.BeforeSend && s.opt.waits()
	c.key, c.writer = r.Key, r.Writer
	c.prev, c.version = strconv.FormatUint(r.Version-1, 10), strconv.FormatUint(r.Version, 10)
	c.deadline, c.expires = w.DeadlineIn.Milliseconds(), w.ExpiresIn.Milliseconds()
	c.rec = string(keystore.Encode(r))
	c.size = 512 + len(c.rec)

	refuse, wait, body, guard := any("go"), any("go"), any("keep"), any("none")
	if leads && s.opt.OnRollback == Refuse {
		refuse = &c.gen
	}
	if c.wait {
		wait = "wait"
	}
	switch w.BodyOp {
	case keystore.BodySet:
		// Copied: the flight may still read it when the caller has left.
		body, c.body = "set", string(w.Body)
		c.size += len(c.body)
	case keystore.BodyDrop:
		body = "drop"
	}
	lease := sc.meta
	if g := w.Guard; g != nil {
		lease, guard = sc.leases+g.Run, "own"
		if g.External {
			guard = "external"
		}
		c.token = padded(g.Token)
	}
	c.with(sc.states, sc.due, lease, // KEYS[3..5]
		c, &s.instance, refuse, wait, &c.prev, &c.version, &c.writer, states[r.State], &c.deadline, &c.expires,
		&c.key, &c.rec, body, &c.body, guard, &c.token)

	rep, err := s.run(ctx, c)
	if err != nil {
		return keystore.Reply{}, err
	}
	return s.shown(w, c, rep)
}

// shown maps what a writing script returned.
func (s *Store) shown(w *keystore.Write, c *call, rep reply) (keystore.Reply, error) {
	out := keystore.Reply{Now: rep.now}
	var ok bool
	if out.Result, ok = results[rep.code]; !ok {
		return keystore.Reply{}, failed(c.script.name, fmt.Errorf("%s.lua answered %q", c.script.name, rep.code), false)
	}
	if out.Result == keystore.Written && rep.wrote {
		out.Record = w.Stamped(rep.now)
		out.Record.ID = keystore.ID{Scope: strings.Clone(w.Record.Scope), Key: w.Record.Key}
		return out, nil
	}
	if len(rep.rest) == 0 {
		return out, nil
	}
	var err error
	if out.Record, err = decode(w.Record.ID, rep.rest); err != nil {
		// What is there cannot be read, and was not changed by this run.
		return keystore.Reply{}, failed(c.script.name, err, out.Result != keystore.Written)
	}
	if len(rep.rest) > columns {
		out.Body = bytesOf(rep.rest[columns])
	}
	return out, nil
}

var results = map[string]keystore.Result{
	"written": keystore.Written, "exists": keystore.Exists, "conflict": keystore.Conflict,
	"lost": keystore.LeaseLost, "found": keystore.Found, "none": keystore.NotFound,
}

// states are the states as arguments.
var states = [...]any{
	keystore.Reserved: "1", keystore.Dispatched: "2", keystore.Unknown: "3", keystore.Completed: "4", keystore.Abandoned: "5",
}

// padded is a token as the scripts compare it.
func padded(token uint64) string { return fmt.Sprintf("%020d", token) }

// columns is how many parts record of prelude.lua returns.
const columns = 7

// decode reads what record of prelude.lua returned.
func decode(id keystore.ID, v []any) (keystore.Record, error) {
	bad := func() (keystore.Record, error) {
		return keystore.Record{}, fmt.Errorf("redisstore: the record of operation %q in scope %q lacks columns: something else wrote its key", id.Key, id.Scope)
	}
	if len(v) < columns {
		return bad()
	}
	var text [columns]string
	for i := range text {
		t, ok := v[i].(string)
		if !ok {
			return bad()
		}
		text[i] = t
	}
	var col keystore.Columns
	var errs [5]error
	col.Version, errs[0] = strconv.ParseUint(text[0], 10, 64)
	col.Writer = text[1]
	state, err := strconv.ParseUint(text[2], 10, 8)
	errs[1] = err
	col.State = keystore.State(state)
	col.Updated, errs[2] = instant(text[3])
	col.Deadline, errs[3] = instant(text[4])
	col.Expires, errs[4] = instant(text[5])
	for _, err := range errs {
		if err != nil {
			return bad()
		}
	}
	return keystore.Decode(id, col, []byte(text[6]))
}

func instant(s string) (keystore.Instant, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	return keystore.Instant(n), err
}

func bytesOf(v any) []byte {
	if s, ok := v.(string); ok {
		return []byte(s)
	}
	return nil
}

package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"fencepost/keystore"
)

// A ledger that went back in time has forgotten sends. Each script that writes
// therefore counts in meta, for the scope (n) and for the instance that wrote
// (i), and every reply brings both. A reply must be at least as far as what this
// process knew when it sent the call, and further where the call wrote. Nobody
// else moves i, so the loss of a single acknowledged write of this process shows
// at its next call in the scope; n shows others' losses where they were larger
// than what was written since. A scope that this process never used has no such
// memory: see generation.go and restart.go.

// alarm is a ledger that went back in time and was not yet acknowledged.
type alarm struct {
	why string
	at  time.Time
	// ack is the count of acknowledgements known when it was raised, -1 when it
	// is not known: a higher one ends the alarm.
	ack int64
}

// learn takes a reply into account and reports whether it shows the ledger at an
// earlier moment than one that was seen before the call was issued.
func (sc *scope) learn(issued memory, r reply) bool {
	w := int64(0)
	if r.wrote {
		w = 1
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	back := r.ack < issued.ack || r.ack == issued.ack && (r.n < issued.n+w || r.i < issued.i+w)
	switch {
	case back, r.ack > sc.seen.ack:
		// Found once, or acknowledged by somebody: count on from here.
		sc.seen = r.memory
	case r.ack == sc.seen.ack:
		sc.seen.n, sc.seen.i = max(sc.seen.n, r.n), max(sc.seen.i, r.i)
	}
	return back
}

// judge looks at a reply for signs of a rollback and refuses what may lead to a
// send on a ledger that shows them. doubt says that an earlier try of the call
// may have written.
func (s *Store) judge(ctx context.Context, c *call, r reply, doubt bool) error {
	if s.compare(ctx, c, r) && r.code == "bad" && r.bad == "" && s.alarm.Load() == nil {
		return errRenewed
	}
	if c.sc.learn(c.issued, r) && !s.acknowledged(ctx) {
		s.raise(ctx, fmt.Sprintf("scope %q had %d writes, %d of them by this process, and now has %d and %d",
			c.sc.name, c.issued.n, c.issued.i, r.n, r.i), true)
	}
	if r.bad != "" && s.alarm.Load() == nil && c.sc.heir.Load() == nil && s.outdated(ctx, c, r.bad) && r.code == "bad" {
		return errRenewed
	}
	if !c.leads || s.opt.OnRollback != Refuse {
		return nil
	}
	a := s.alarm.Load()
	if a == nil && r.code != "bad" {
		return nil
	}
	why := r.bad
	if a != nil {
		why = a.why
	}
	return failed(c.script.name, fmt.Errorf("%w: %s", keystore.ErrRolledBack, why), !doubt && r.code != "written")
}

// outdated reports whether a word that a reply brought was said before an
// acknowledgement that came while the call was under way. If it was not, the alarm is
// raised. (A word that was said anew meanwhile shows at the next call.)
func (s *Store) outdated(ctx context.Context, c *call, why string) bool {
	s.accepting.Lock()
	defer s.accepting.Unlock()
	if _, ack := s.identity(); ack > c.ack {
		return true
	}
	s.raise(ctx, why, false)
	return false
}

// errRenewed says that the call was refused since somebody acknowledged a
// rollback meanwhile: it may be sent again.
var errRenewed = errors.New("the ledger has a new generation")

// raise sounds the alarm, once until it is acknowledged. Where this process
// found it itself, it tells the others. It reports whether sends have just ended.
func (s *Store) raise(ctx context.Context, why string, found bool) bool {
	a := &alarm{why: why, at: time.Now(), ack: s.ack.Load()}
	if !s.alarm.CompareAndSwap(nil, a) {
		return false
	}
	sends := "nothing is sent until it is acknowledged (fencepost check --acknowledge-rollback)"
	if s.opt.OnRollback == Warn {
		sends = "sends go on, since on_rollback is warn"
	}
	s.opt.Logger.ErrorContext(ctx, "the redis ledger went back in time: it has forgotten operations, "+sends, "why", why)
	if found && s.opt.OnRollback == Refuse {
		s.unspread.Store(true)
	}
	s.kick() // to tell the others, and to name the scopes that are to be acknowledged
	return s.opt.OnRollback == Refuse
}

// spread tells the other processes, through the ledger as a whole and through
// every scope.
func (s *Store) spread(ctx context.Context) error {
	a := s.alarm.Load()
	if a == nil {
		s.unspread.Store(false)
		return nil
	}
	scopes, err := s.allScopes(ctx)
	if err != nil {
		scopes = s.callers()
	}
	flag := func(sc *scope) error {
		known := a.ack
		if known < 0 {
			known = sc.remembers().ack
		}
		c := s.newCall(sc, flagScript, sc.meta.(string))
		c.with(c, &s.instance, a.why, known)
		_, err := s.run(ctx, c)
		return err
	}
	// The ledger as a whole first: whoever does not know it yet asks there.
	err = errors.Join(err, flag(s.ledger), together(len(scopes), func(i int) error { return flag(scopes[i]) }))
	if err == nil && s.acknowledged(ctx) {
		// Somebody acknowledged while the word was being spread. A scope that the
		// acknowledgement did not know of may have been told after it.
		err = s.renew(ctx, scopes)
	}
	if err == nil {
		s.unspread.Store(false)
	}
	return err
}

// renew takes the word back from scopes, after an acknowledgement.
func (s *Store) renew(ctx context.Context, scopes []*scope) error {
	gen := s.gen.Load()
	if gen == nil {
		return nil
	}
	return together(len(scopes), func(i int) error {
		c := s.newCall(scopes[i], ackScript, scopes[i].meta.(string))
		c.with(c, &s.instance, s.ack.Load())
		c.with(*gen, "scope")
		_, err := s.run(ctx, c)
		return err
	})
}

// mayLead refuses what may lead to a send while the ledger is not to be trusted.
// An alarm may have been acknowledged through another process: the ledger is
// asked.
func (s *Store) mayLead(ctx context.Context, op string) error {
	if p := s.evicting.Load(); p != nil {
		return failed(op, fmt.Errorf("%w: %s", ErrEvicting, *p), true)
	}
	if s.opt.OnRollback != Refuse || s.alarm.Load() == nil || s.acknowledged(ctx) {
		return nil
	}
	return s.mistrusted(op, true)
}

// acknowledged asks the ledger whether somebody acknowledged a rollback since
// this process last knew, and forgets its memory and its alarm if so.
func (s *Store) acknowledged(ctx context.Context) bool {
	rep, err := s.look(ctx, s.ledger)
	if err != nil {
		return false
	}
	return s.accept(rep)
}

// forget lets this process learn the ledger anew.
func (s *Store) forget() {
	for _, sc := range s.known() {
		if strings.HasPrefix(sc.name, probePrefix) {
			s.scopes.Delete(sc.name) // the new generation has its own
		}
		sc.mu.Lock()
		sc.seen = memory{ack: sc.seen.ack}
		sc.mu.Unlock()
		sc.founded.Store(false)
		sc.registered.Store(false)
	}
}

// look reads what every reply carries.
func (s *Store) look(ctx context.Context, sc *scope) (reply, error) {
	c := s.newCall(sc, lookScript, sc.meta.(string))
	c.with(c, &s.instance)
	c.read, c.size = true, 256
	return s.run(ctx, c)
}

// AcknowledgeRollback ends a rollback's alarm for every process that shares the
// ledger. It is an operator's word that what the ledger has forgotten was looked
// into: from here on, a key that it forgot is a new key.
func (s *Store) AcknowledgeRollback(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	ack := func(sc *scope, least int64, args ...any) (reply, error) {
		c := s.newCall(sc, ackScript, sc.meta.(string))
		c.with(c, &s.instance, least)
		c.with(args...)
		return s.run(ctx, c)
	}
	now, err := s.look(ctx, s.ledger)
	if err != nil {
		return err
	}
	scopes, err := s.allScopes(ctx)
	if err != nil {
		return failed("acknowledge", err, false)
	}
	c := s.newCall(s.ledger, proposeScript, s.ledger.meta.(string))
	c.with(c, &s.instance, rand.Text())
	proposed, err := s.run(ctx, c)
	if err != nil {
		return err
	}
	if len(proposed.rest) == 0 {
		return failed("acknowledge", errors.New("no generation was proposed"), true)
	}
	gen := proposed.rest[0]
	// The ledger as a whole last: it is what the other processes ask, and when it
	// says so no scope may still say otherwise. A count that starts at the clock
	// goes on where a flush took the count away.
	var mu sync.Mutex
	least := max(int64(now.now), now.ack+1)
	highest := least
	err = together(len(scopes), func(i int) error {
		r, err := ack(scopes[i], least, gen, "scope")
		mu.Lock()
		defer mu.Unlock()
		highest = max(highest, r.ack)
		return err
	})
	if err != nil {
		return err
	}
	args := []any{gen, "ledger"}
	for _, sc := range scopes {
		args = append(args, "s:"+sc.name)
	}
	rep, err := ack(s.ledger, highest, args...)
	if err != nil {
		return err
	}
	s.accepting.Lock()
	s.gen.Store(&rep.gen)
	s.ack.Store(rep.ack)
	s.forget()
	s.alarm.Store(nil)
	s.accepting.Unlock()
	s.unspread.Store(false)
	s.opt.Logger.WarnContext(ctx, "the redis ledger's rollback was acknowledged")
	s.kick()
	return nil
}

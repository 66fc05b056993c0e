package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// A generation is a random name that an empty ledger gets at its first use, kept
// in prefix:state and in the meta of every scope. A flush takes it away, so that
// a process that never used a scope can tell a scope that was lost from a new
// one: prefix:state says which scopes there are, and a scope that it names has a
// meta of the same generation. An acknowledgement gives a new one.

// identity is the generation of the ledger as this process knows it, "" before
// the first contact, and the count of acknowledgements that goes with it.
func (s *Store) identity() (gen string, ack int64) {
	ack = s.ack.Load() // before gen: they are written the other way round
	if p := s.gen.Load(); p != nil {
		gen = *p
	}
	return gen, ack
}

// accept takes generation and count of acknowledgements from a reply about the
// ledger as a whole, and reports whether an acknowledgement is news.
func (s *Store) accept(r reply) bool {
	s.accepting.Lock()
	defer s.accepting.Unlock()
	gen, before := s.identity()
	if gen != "" && r.ack > before && r.gen != gen {
		for _, sc := range s.known() {
			if sc.founded.Load() {
				sc.heir.Store(&gen)
			}
		}
	}
	if r.gen != "" && (gen == "" || r.ack > before) {
		s.gen.Store(&r.gen)
	}
	if r.ack <= before {
		return false
	}
	s.ack.Store(r.ack)
	a := s.alarm.Load()
	if before < 0 {
		// The first look: there is nothing to compare with.
		if a != nil && a.ack < 0 {
			s.alarm.CompareAndSwap(a, &alarm{why: a.why, at: a.at, ack: r.ack})
		}
		return false
	}
	s.forget()
	if a != nil && a.ack < r.ack {
		s.alarm.CompareAndSwap(a, nil)
	}
	return true
}

// ask runs ledger.lua and takes its answer in.
func (s *Store) ask(ctx context.Context, candidate, field, gen string) (has bool, r reply, err error) {
	c := s.newCall(s.ledger, ledgerScript, s.ledger.meta.(string))
	c.with(c, &s.instance, candidate, field, gen)
	c.size = 256
	r, err = s.run(ctx, c)
	if err != nil {
		return false, r, err
	}
	s.accept(r)
	return len(r.rest) > 0 && r.rest[0] == "1", r, nil
}

// meet learns the generation at the first contact, and begins it in a ledger that
// is empty.
func (s *Store) meet(ctx context.Context) error {
	if gen, _ := s.identity(); gen != "" {
		return nil
	}
	// Scopes are named after the generation began, so they are read before it: a
	// ledger that has scopes and no generation has lost it.
	key := s.opt.Prefix + ":scopes"
	var names []string
	err := s.direct(ctx, key, func(ctx context.Context, client *redis.Client) (err error) {
		names, err = client.SMembers(ctx, key).Result()
		return err
	})
	if err != nil {
		return failed("name the ledger", err, true)
	}
	candidate := ""
	if len(names) == 0 {
		candidate = rand.Text()
	}
	_, r, err := s.ask(ctx, candidate, "", "ask")
	if err == nil && r.gen == "" && r.bad == "" {
		s.raise(ctx, "the ledger has scopes and no generation: "+s.ledger.meta.(string)+" was lost", true)
	}
	return err
}

// register prepares a scope for its first record by this process, once: it asks
// the ledger which generation it is and whether it has the scope. A scope that is
// new gets its generation and a place in the set of scopes, for lists; one that
// is not must have its generation, which the writing scripts compare.
func (s *Store) register(ctx context.Context, sc *scope) error {
	if sc.registered.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	err := s.enroll(ctx, sc)
	if err != nil {
		s.kick()
		return failed("name the scope", err, true)
	}
	return nil
}

func (s *Store) enroll(ctx context.Context, sc *scope) error {
	if err := s.meet(ctx); err != nil {
		return err
	}
	changes := s.changes.Load()
	field := "s:" + sc.name
	has, _, err := s.ask(ctx, "", field, "ask")
	if err != nil {
		return err
	}
	gen, _ := s.identity()
	if heir := sc.heir.Load(); heir != nil && gen != "" && s.alarm.Load() == nil {
		if err := s.found(ctx, sc, *heir); err != nil {
			return err
		}
		sc.heir.CompareAndSwap(heir, nil)
	}
	if !has {
		// In this order: what the ledger has is founded and listed.
		sound := gen != "" && s.alarm.Load() == nil
		if sound {
			if err := s.found(ctx, sc, ""); err != nil {
				return err
			}
		}
		if err := s.name(ctx, sc); err != nil {
			return err
		}
		switch {
		case sound:
			if has, _, err = s.ask(ctx, "", field, gen); err != nil {
				return err
			}
		case s.opt.OnRollback == Warn:
			sc.registered.Store(true) // it goes on without a generation
		}
	}
	if now, _ := s.identity(); has && now == gen {
		sc.founded.Store(true)
		sc.registered.Store(true)
		if s.changes.Load() != changes {
			sc.registered.Store(false) // a server changed meanwhile: once more
		}
	}
	return nil
}

// found gives a scope its generation, see found.lua.
func (s *Store) found(ctx context.Context, sc *scope, heir string) error {
	gen, ack := s.identity()
	c := s.newCall(sc, foundScript, sc.meta.(string))
	c.with(c, &s.instance, gen, heir, ack)
	c.size = 256
	_, err := s.run(ctx, c)
	return err
}

// name puts a scope into the set of scopes.
func (s *Store) name(ctx context.Context, sc *scope) error {
	if strings.HasPrefix(sc.name, probePrefix) {
		return nil
	}
	key := s.opt.Prefix + ":scopes"
	return s.direct(ctx, key, func(ctx context.Context, client *redis.Client) error {
		return client.SAdd(ctx, key, sc.name).Err()
	})
}

// compare holds a reply's generation against what this process knew when it sent
// the call. It raises the alarm where they differ, and reports renewed where they
// differ because somebody acknowledged a rollback.
func (s *Store) compare(ctx context.Context, c *call, r reply) (renewed bool) {
	switch {
	case c.gen == "", r.gen == c.gen, c.script == ackScript, c.script == proposeScript:
		return false
	case c.sc == s.ledger:
		if r.ack <= c.ack {
			s.differs(ctx, c.gen, fmt.Sprintf("the generation of the ledger was %s and is now %q", c.gen, r.gen))
		}
		return false
	case c.sc.heir.Load() != nil:
		return r.code == "bad" // the next use gives it the new one
	case r.gen == "" && !c.founded:
		return false // nobody has written the scope yet
	case strings.HasPrefix(c.sc.name, probePrefix) && !strings.HasPrefix(c.sc.name, s.probeScopes()):
		return false // of an earlier generation
	}
	if now, _ := s.identity(); now != c.gen {
		return true
	}
	if s.alarm.Load() != nil {
		return false
	}
	if s.acknowledged(ctx) {
		return true
	}
	s.differs(ctx, c.gen, fmt.Sprintf("scope %q is of generation %q and the ledger of %s", c.sc.name, r.gen, c.gen))
	return false
}

// differs raises the alarm for a generation that was not found again, unless an
// acknowledgement has replaced it meanwhile: the reply was of before that.
func (s *Store) differs(ctx context.Context, gen, why string) bool {
	s.accepting.Lock()
	defer s.accepting.Unlock()
	if now, _ := s.identity(); now != gen {
		return false
	}
	return s.raise(ctx, why, true)
}

// mistrusted refuses what may lead to a send under an alarm.
func (s *Store) mistrusted(op string, untouched bool) error {
	if a := s.alarm.Load(); a != nil && s.opt.OnRollback == Refuse {
		return failed(op, fmt.Errorf("%w: %s", keystore.ErrRolledBack, a.why), untouched)
	}
	return nil
}

package redisstore

import (
	"context"
	"strconv"

	"fencepost/keystore"
)

// Get implements [keystore.Store].
func (s *Store) Get(ctx context.Context, id keystore.ID) (keystore.Reply, error) {
	if err := s.enter(); err != nil {
		return keystore.Reply{}, err
	}
	defer s.leave()
	sc, err := s.scope(id.Scope)
	if err != nil {
		return keystore.Reply{}, err
	}
	return s.get(ctx, getScript, sc, id)
}

func (s *Store) get(ctx context.Context, sp *script, sc *scope, id keystore.ID) (keystore.Reply, error) {
	c := s.newCall(sc, sp, sc.ops+id.Key)
	c.with(c, &s.instance)
	c.read, c.size = true, 256
	rep, err := s.run(ctx, c)
	if err != nil {
		return keystore.Reply{}, err
	}
	return s.shown(&keystore.Write{Record: keystore.Record{ID: id}}, c, rep)
}

// Delete implements [keystore.Store]. Where its reply is lost it is not
// repeated: the key may be new by then, at the same version.
func (s *Store) Delete(ctx context.Context, id keystore.ID, version uint64) (keystore.Reply, error) {
	if err := s.enter(); err != nil {
		return keystore.Reply{}, err
	}
	defer s.leave()
	sc, err := s.scope(id.Scope)
	if err != nil {
		return keystore.Reply{}, err
	}
	return s.delete(ctx, sc, id, version)
}

func (s *Store) delete(ctx context.Context, sc *scope, id keystore.ID, version uint64) (keystore.Reply, error) {
	c := s.newCall(sc, deleteScript, sc.ops+id.Key)
	c.version, c.key = strconv.FormatUint(version, 10), id.Key
	c.with(sc.states, sc.due, c, &s.instance, &c.version, &c.key)
	c.once, c.size = true, 256
	rep, err := s.run(ctx, c)
	if err != nil {
		return keystore.Reply{}, err
	}
	// The reply shows the record that is gone; nothing of it was made here.
	wrote := rep.wrote
	rep.wrote = false
	out, err := s.shown(&keystore.Write{Record: keystore.Record{ID: id}}, c, rep)
	if err != nil && wrote {
		// It could not be read, and it is gone.
		return keystore.Reply{Result: keystore.Written, Now: rep.now}, nil
	}
	return out, err
}

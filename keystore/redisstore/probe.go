package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"fencepost/keystore"
)

// probePrefix begins the scopes of the probes. No caller's scope can.
const probePrefix = "~"

// probeScopes begins the scopes of this generation's probes.
func (s *Store) probeScopes() string {
	gen, _ := s.identity()
	return probePrefix + gen[:min(8, len(gen))] + "-"
}

// probes returns a scope on every primary.
func (s *Store) probes(ctx context.Context, masters *sync.Map) []*scope {
	var out []*scope
	prefix := s.probeScopes()
	want := 0
	masters.Range(func(_, _ any) bool { want++; return true })
	for i := 0; len(out) < want && i < 64*max(want, 1); i++ {
		name := prefix + strconv.Itoa(i)
		v, _ := s.scopes.LoadOrStore(name, s.newScope(name))
		sc := v.(*scope)
		client, err := s.topo.node(ctx, sc)
		if err != nil {
			return out
		}
		if _, ok := masters.LoadAndDelete(client); ok {
			out = append(out, sc)
		} else if sc.remembers() == (memory{}) {
			s.scopes.Delete(name)
		}
	}
	return out
}

// probe takes one operation through its life.
func (s *Store) probe(ctx context.Context, sc *scope) error {
	id := keystore.ID{Scope: sc.name, Key: s.instance}
	s.probing.Lock()
	defer s.probing.Unlock()
	if err := s.register(ctx, sc); err != nil {
		return err
	}
	writer := fmt.Sprintf("probe-%d", time.Now().UnixNano())
	ev := keystore.Event{
		Kind: keystore.Reserve, Writer: writer + "-1", By: s.instance, Attempt: writer, Silence: time.Minute, Keep: time.Minute,
		New: &keystore.Record{ID: id, Operation: writer, Fingerprint: "probe"},
	}
	if old, err := s.get(ctx, getScript, sc, id); err != nil {
		return err
	} else if old.Result == keystore.Found { // left by a probe that was cut off
		if _, err := s.delete(ctx, sc, id, old.Record.Version); err != nil {
			return err
		}
	}
	w, no := keystore.Next(nil, ev, 0, nil)
	if no != keystore.Allowed {
		return errors.New(string(no)) // unreachable: the event is complete
	}
	r, err := s.put(ctx, insertScript, sc, &w, true)
	if err != nil {
		return err
	}
	if r.Result != keystore.Written {
		return fmt.Errorf("a probe found its own key taken (result %d)", r.Result)
	}
	w, no = keystore.Next(&r.Record, keystore.Event{Kind: keystore.Mark, Writer: writer + "-2", By: s.instance, Attempt: writer, Silence: time.Minute}, r.Now, nil)
	if no != keystore.Allowed {
		return errors.New(string(no)) // unreachable: the event is complete
	}
	if r, err = s.put(ctx, swapScript, sc, &w, true); err != nil {
		return err
	}
	if r, err = s.get(ctx, getScript, sc, id); err != nil {
		return err
	}
	if r.Result != keystore.Found || r.Record.Version != 2 {
		return fmt.Errorf("a probe does not read back (result %d, version %d)", r.Result, r.Record.Version)
	}
	_, err = s.delete(ctx, sc, id, 2)
	return err
}

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server that came back may have an older ledger, also in scopes that this
// process has never used and whose counters it does not remember. So each new
// connection asks the server for its run_id before anything else goes over it,
// and each check asks again.

// life is one life of a server, between start and stop.
type life struct {
	run string
	// first and last are when this process first and last asked it.
	first, last time.Time
	// durable says that every write it acknowledged was synced, at the last look.
	durable bool
}

// errNoticed fails the connection that found out, once for an alarm: what waits
// for it has not been sent.
var errNoticed = errors.New("the server of the ledger may have gone back in time")

// greet returns the hook for new connections to a server; place is its address in
// a cluster and "" elsewhere.
func (s *Store) greet(place string) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		asked := time.Now()
		gen, acked := s.identity() // before asking: what comes later is no contradiction
		pipe := conn.Pipeline()
		info, fsync := pipe.Info(ctx), pipe.ConfigGet(ctx, "appendfsync")
		state := pipe.HMGet(ctx, s.ledger.meta.(string), "gen", "ack")
		_, _ = pipe.Exec(ctx) // each carries its own error
		text, err := info.Result()
		var refusal redis.Error
		raised := false
		switch {
		case err != nil && !errors.As(err, &refusal):
			return err // the connection does not work
		case err == nil:
			m := parseInfo(text)
			if m["redis_mode"] == "sentinel" {
				return nil
			}
			if why := s.sight(place, m, fsync.Val()["appendfsync"], asked); why != "" && !s.heard(state) {
				raised = s.raise(ctx, why, true)
			}
		}
		if s.recognise(ctx, state, gen, acked) || raised {
			return errNoticed
		}
		return nil
	}
}

// heard says that an acknowledgement came after what this process knows.
func (s *Store) heard(state *redis.SliceCmd) bool {
	_, ack, ok := stateOf(state)
	_, known := s.identity()
	return ok && known >= 0 && ack > known
}

// recognise compares the generation that a new connection shows, and reports an
// alarm that it raised. known and acked are what this process knew before.
func (s *Store) recognise(ctx context.Context, state *redis.SliceCmd, known string, acked int64) bool {
	gen, ack, ok := stateOf(state)
	if ok && known != "" && gen != known && ack <= acked {
		return s.differs(ctx, known, fmt.Sprintf("the generation of the ledger was %s and is now %q", known, gen))
	}
	return false
}

// stateOf reads what HMGET gave; a server that has not loaded its data, or does
// not own the key, gave none.
func stateOf(state *redis.SliceCmd) (gen string, ack int64, ok bool) {
	v, err := state.Result()
	if err != nil || len(v) != 2 {
		return "", 0, false
	}
	gen, _ = v[0].(string)
	text, _ := v[1].(string)
	ack, _ = strconv.ParseInt(text, 10, 64)
	return gen, ack, true
}

// sight takes note of a server as INFO shows it and returns why the ledger may
// have gone back in time, or "". A restart loses nothing where every write was
// synced, before and after it. Another server in the same place, which ran before,
// was promoted: it has what a send followed where replicas had to confirm that.
func (s *Store) sight(place string, info map[string]string, fsync string, asked time.Time) string {
	if info["role"] != "master" || info["run_id"] == "" {
		return "" // nothing is written there, or nobody can tell
	}
	now := life{run: info["run_id"], first: asked, last: asked, durable: info["aof_enabled"] == "1" && (fsync == "always" || s.opt.AOF)}
	s.sighting.Lock()
	defer s.sighting.Unlock()
	old, known := s.lives[place]
	switch {
	case known && asked.Before(old.last):
		if old.run == now.run {
			return ""
		}
		if asked.Before(old.first) {
			return "" // an answer of before the restart, late
		}
	case known && old.run == now.run:
		now.first = old.first
	}
	s.lives[place] = now
	if !known || old.run == now.run {
		return ""
	}
	s.changes.Add(1)
	for _, sc := range s.known() {
		sc.registered.Store(false)
	}
	up, err := strconv.ParseInt(info["uptime_in_seconds"], 10, 64)
	if err == nil && time.Duration(up-1)*time.Second > asked.Sub(old.last) {
		if s.opt.Replicas > 0 {
			return ""
		}
		return "another server took the primary's place, and no replica had to confirm its writes"
	}
	if old.durable && now.durable {
		return ""
	}
	return "the server restarted, and it is not known that it syncs every write (appendonly yes, appendfsync always)"
}

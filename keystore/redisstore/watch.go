package redisstore

import (
	"context"
	"time"

	"fencepost/keystore"
)

// calm is the least time between two checks that trouble asked for.
const calm = time.Second

// watch checks the ledger now, at every interval, and after trouble with a
// connection: a server that comes back may be another one.
func (s *Store) watch(ctx context.Context) {
	tick := time.NewTicker(s.opt.CheckEvery)
	defer tick.Stop()
	for {
		s.attend(ctx)
		var cool <-chan time.Time
		kicked := s.kicked
		if s.unspread.Load() {
			cool = time.After(calm) // the server was away: once more soon
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-cool:
		case <-kicked:
			if !s.unspread.Load() && !s.pause(ctx) {
				return
			}
		}
	}
}

// pause keeps checks after trouble apart.
func (s *Store) pause(ctx context.Context) bool {
	wait := calm - time.Since(time.Unix(0, s.attended.Load()))
	if wait <= 0 {
		return true
	}
	select {
	case <-time.After(wait):
		return true
	case <-ctx.Done():
		return false
	}
}

// kick asks for a check soon. It never blocks.
func (s *Store) kick() {
	select {
	case s.kicked <- struct{}{}:
	default:
	}
}

// attend is one round of the watch: tell an alarm, see whether one was
// acknowledged, look at every scope this process knows, check the servers.
func (s *Store) attend(ctx context.Context) {
	s.attended.Store(time.Now().UnixNano())
	if s.unspread.Load() {
		if err := s.spread(ctx); err != nil && ctx.Err() == nil {
			s.opt.Logger.ErrorContext(ctx, "the redis ledger went back in time, and the other processes could not all be told yet", "err", err)
		}
	}
	s.acknowledged(ctx)
	_ = s.meet(ctx) // an error is trouble that shows below, too
	scopes := s.known()
	// An error is trouble of its own, and shows in the findings below.
	_ = together(len(scopes), func(i int) error {
		sc := scopes[i]
		if sc.heir.Load() != nil {
			_ = s.register(ctx, sc) // an acknowledgement may not have reached it
		}
		if sc.founded.Load() {
			_ = s.name(ctx, sc) // where the set was lost
		}
		_, err := s.look(ctx, sc)
		return err
	})
	// The first round comes with Open, which is not the moment for probes.
	again := s.attendedOnce.Swap(true)
	fs := s.examine(ctx, again)
	if ctx.Err() != nil {
		return
	}
	s.report(ctx, fs)
}

// report keeps the findings and logs what is new in them.
func (s *Store) report(ctx context.Context, fs []keystore.Finding) {
	old := map[string]bool{}
	for _, f := range s.Findings() {
		old[f.Message] = true
	}
	s.findings.Store(&fs)
	for _, f := range fs {
		switch {
		case old[f.Message]:
		case f.Fatal:
			s.opt.Logger.ErrorContext(ctx, "redis ledger: "+f.Message)
		default:
			s.opt.Logger.WarnContext(ctx, "redis ledger: "+f.Message)
		}
	}
}

// Findings returns what the latest check found, by Check or in the background,
// worst first; nothing before the first one.
func (s *Store) Findings() []keystore.Finding {
	if p := s.findings.Load(); p != nil {
		return append([]keystore.Finding(nil), *p...)
	}
	return nil
}

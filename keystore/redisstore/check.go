package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// Check implements [keystore.Store]. It runs the real scripts on every primary,
// which a PING does not stand for, and looks at what the servers are set to. The
// error is nil also where the findings are fatal.
func (s *Store) Check(ctx context.Context) ([]keystore.Finding, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := ctx.Err(); err != nil {
		return nil, failed("check", err, true)
	}
	s.acknowledged(ctx)
	_ = s.meet(ctx) // an error is trouble that shows below, too
	fs := s.examine(ctx, true)
	if err := ctx.Err(); err != nil {
		return nil, failed("check", err, true)
	}
	s.findings.Store(&fs)
	return slices.Clone(fs), nil
}

const unconfirmed = "Writes are not confirmed by replicas (replicas is 0): a failover, planned or not, may forget acknowledged operations, which shows as a rollback. Set replicas to 1 or more."

// verdicts collects from several servers at once.
type verdicts struct {
	mu   sync.Mutex
	list []keystore.Finding
}

func (v *verdicts) add(fatal bool, format string, a ...any) {
	f := keystore.Finding{Fatal: fatal, Message: fmt.Sprintf(format, a...)}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Contains(v.list, f) {
		v.list = append(v.list, f)
	}
}

// examine looks at every primary, and with probe runs the scripts there. It also
// decides whether sends are refused because a server may evict.
func (s *Store) examine(ctx context.Context, probe bool) []keystore.Finding {
	v := &verdicts{}
	policies := &verdicts{}
	var masters sync.Map
	var silent atomic.Bool
	err := s.topo.each(ctx, func(ctx context.Context, client *redis.Client) error {
		masters.Store(client, true)
		ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
		defer cancel()
		if !s.server(ctx, client, v, policies) {
			silent.Store(true)
		}
		return nil
	})
	if err != nil {
		v.add(true, "The primaries cannot be found: %v. Nothing can be sent until they can; see that the servers run and that the URL is right.", err)
	}
	if probe {
		for _, sc := range s.probes(ctx, &masters) {
			if err := s.probe(ctx, sc); err != nil && !errors.Is(err, keystore.ErrRolledBack) && !errors.Is(err, ErrEvicting) {
				v.add(true, "A write to the ledger failed: %v. Nothing can be sent until it works; mend what the error names.", err)
			}
		}
	}
	if ctx.Err() == nil {
		if len(policies.list) > 0 {
			s.evicting.Store(&policies.list[0].Message)
		} else if err == nil && !silent.Load() {
			// A server that could not be asked has not been mended.
			s.evicting.Store(nil)
		}
	}
	v.list = append(v.list, policies.list...)
	if a := s.alarm.Load(); a != nil {
		what := "Nothing is sent. Find out what the lost operations did (logs of the proxies and of the providers), then acknowledge the rollback."
		if s.opt.OnRollback == Warn {
			what = "Sends go on (on_rollback: warn), and may repeat what was forgotten. Find out what the lost operations did, then acknowledge the rollback."
		}
		v.add(s.opt.OnRollback == Refuse, "The ledger went back in time, seen at %s: %s. Acknowledged operations are forgotten (failover, restore or flush). %s",
			a.at.UTC().Format(time.RFC3339), a.why, what)
	}
	if _, single := s.topo.(one); s.opt.Replicas == 0 && (!single || s.isSentinel) {
		v.add(false, unconfirmed)
	}
	slices.SortStableFunc(v.list, func(a, b keystore.Finding) int {
		switch {
		case a.Fatal == b.Fatal:
			return 0
		case a.Fatal:
			return -1
		}
		return 1
	})
	return v.list
}

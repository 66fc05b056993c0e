package proxy

import (
	"context"
	"sync"
	"time"

	"fencepost/keystore"
)

// sweepPage is how many records one step of a sweep looks at. Steps are small
// so that requests are never kept waiting by one.
const sweepPage = 128

// Sweep goes once through everything that has expired. Errors mean that the
// ledger failed; what was swept stays swept.
func (p *Proxy) Sweep(ctx context.Context) error {
	q := keystore.Query{Due: true, Limit: sweepPage}
	for {
		start := time.Now()
		page, err := p.ledger.list(ctx, q)
		if err != nil {
			return err
		}
		if err := p.sweepPage(ctx, page); err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		q.Cursor = page.Next
		// Half of the time belongs to the requests.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Since(start)):
		}
	}
}

// sweepPage sweeps the records of a page together, so that a store that commits
// waiting writes at once commits them at once.
func (p *Proxy) sweepPage(ctx context.Context, page keystore.Page) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	slots := make(chan struct{}, 16)
	for _, r := range page.Records {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.sweepOne(ctx, r, page.Now); err != nil {
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return first
}

func (p *Proxy) sweepOne(ctx context.Context, r keystore.Record, now keystore.Instant) error {
	if r.Forgettable(now) {
		rep, err := p.ledger.delete(ctx, r.ID, r.Version)
		if err == nil && rep.Result == keystore.Written {
			p.metrics.swept.WithLabelValues("forgotten").Inc()
		}
		return err
	}
	w, no := keystore.Next(&r, keystore.Event{Kind: keystore.Bury, Writer: p.ledger.writer(), By: p.ledger.instance, Keep: p.cfg.Tombstone, Why: "retention is over"}, now, p.ledger.gone)
	if no != keystore.Allowed {
		// It came back to life since it was listed.
		return nil
	}
	rep, err := p.ledger.swap(ctx, w)
	if err == nil && rep.Result == keystore.Written {
		p.metrics.swept.WithLabelValues("reduced").Inc()
	}
	return err
}

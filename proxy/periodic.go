package proxy

import (
	"context"
	"math/rand/v2"
	"time"
)

// periodically does something again and again for as long as the process lives.
// The pauses vary, since many proxies share one ledger.
func (p *Proxy) periodically(every time.Duration, what string, do func(context.Context) error) {
	t := time.NewTimer(rand.N(every))
	defer t.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-t.C:
		}
		if err := do(p.life); err != nil && p.life.Err() == nil {
			p.log.Warn(what+" stopped before its end", "error", err)
		}
		t.Reset(every/2 + rand.N(every))
	}
}

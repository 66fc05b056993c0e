package config

import (
	"fmt"
	"time"
)

// validateWindows checks that a record is there for as long as anybody may still
// retry or reconcile: a retry that meets a forgotten record is a second effect.
func (c *Config) validateWindows(i int, k *checker) {
	r, route := &c.Routes[i], fmt.Sprintf("routes[%d].", i)
	if !k.ok(route+"timeout", route+"duplicates.wait", route+"reconcile.settle", route+"reconcile.max_every", route+"reconcile.timeout") {
		return
	}
	window := r.Timeout + r.Duplicates.Wait
	parts := fmt.Sprintf("timeout %v + duplicates.wait %v", time.Duration(r.Timeout), time.Duration(r.Duplicates.Wait))
	if rc := r.Reconcile; rc != nil {
		window += rc.Settle + rc.MaxEvery + rc.Timeout
		parts += fmt.Sprintf(" + reconcile.settle %v + reconcile.max_every %v + reconcile.timeout %v", time.Duration(rc.Settle), time.Duration(rc.MaxEvery), time.Duration(rc.Timeout))
	}
	if r.Key.Missing == "derive" && r.Key.Window <= window {
		k.fail(route+"key.window", "is %v, which is not longer than the recovery window of the route, %v (%s): a retry could come after it and be sent as a new request", time.Duration(r.Key.Window), time.Duration(window), parts)
	}
	if c.Ledger.Retention <= window {
		k.fail("ledger.retention", "is %v, which is not longer than the recovery window of route %s, %v (%s): a retry could meet a forgotten record", time.Duration(c.Ledger.Retention), shown(r.Name), time.Duration(window), parts)
	}
	if d := r.UpstreamKey.DeduplicatesFor; d > 0 && d <= window {
		k.fail(route+"upstream_key.deduplicates_for", "is %v, which is not longer than the recovery window of the route, %v (%s): the upstream would forget the key before the last retry", time.Duration(d), time.Duration(window), parts)
	}
}

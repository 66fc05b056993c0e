package config

import (
	"errors"
	"os"
	"strings"
	"time"
)

// validate checks what no single value can show. It reports every problem.
func (c *Config) validate(k *checker) {
	positive := func(path string, ok bool) {
		if !ok {
			k.fail(path, "must be more than zero")
		}
	}
	k.choice("forwarded", c.Forwarded, "off", "pass", "set", "append")
	k.choice("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.choice("log.format", c.Log.Format, "json", "text")
	k.choice("ledger.on_rollback", c.Ledger.OnRollback, "refuse", "warn")

	for path, v := range map[string]Duration{
		"ledger.retention": c.Ledger.Retention, "ledger.tombstone": c.Ledger.Tombstone, "ledger.timeout": c.Ledger.Timeout,
		"ledger.sweep_every": c.Ledger.SweepEvery, "limits.header_timeout": c.Limits.HeaderTimeout, "limits.body_timeout": c.Limits.BodyTimeout,
		"limits.idle_timeout": c.Limits.IdleTimeout, "limits.wait": c.Limits.Wait, "limits.stream_after": c.Limits.StreamAfter, "upstreams.idle_timeout": c.Upstreams.IdleTimeout,
		"upstreams.dial_timeout": c.Upstreams.DialTimeout, "upstreams.tls_timeout": c.Upstreams.TLSTimeout, "drain.timeout": c.Drain.Timeout,
	} {
		positive(path, v > 0)
	}
	for path, v := range map[string]int64{
		"limits.header": int64(c.Limits.Header), "limits.body_memory": int64(c.Limits.BodyMemory), "limits.waiters": int64(c.Limits.Waiters),
		"limits.pending": int64(c.Limits.Pending), "limits.pending_bytes": int64(c.Limits.PendingBytes), "upstreams.max_idle": int64(c.Upstreams.MaxIdle), "upstreams.header": int64(c.Upstreams.Header),
	} {
		positive(path, v > 0)
	}
	if c.Ledger.OwnerDeadline < Duration(3*time.Second) {
		k.fail("ledger.owner_deadline", "is %v; below 3s a living owner on a slow ledger would be taken for dead", time.Duration(c.Ledger.OwnerDeadline))
	}
	if c.Ledger.OwnerDeadline < 3*c.Ledger.Timeout && k.ok("ledger.timeout") {
		k.fail("ledger.owner_deadline", "is %v, less than three times ledger.timeout (%v): a living owner could not extend it in time", time.Duration(c.Ledger.OwnerDeadline), time.Duration(c.Ledger.Timeout))
	}
	if n := len(c.Ledger.FingerprintKey); n > 0 && n < 16 {
		k.fail("ledger.fingerprint_key", "has %d characters; use at least 16 random ones", n)
	}
	if n := len(c.Admin.Token); n > 0 && n < 16 {
		k.fail("admin.token", "has %d characters; use at least 16 random ones", n)
	}
	if err := checkLedgerURL(string(c.Ledger.URL)); err != nil {
		k.fail("ledger.url", "%v", err)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		k.fail("tls", "needs both cert and key")
	}
	for path, file := range map[string]string{"ledger.ca": c.Ledger.CA, "upstreams.ca": c.Upstreams.CA, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key} {
		if file != "" {
			if _, err := os.Stat(file); err != nil {
				// Without the name, which may be a URL by mistake; the place says which.
				if p, is := errors.AsType[*os.PathError](err); is && strings.Contains(file, "@") {
					err = p.Err
				}
				k.fail(path, "%v", err)
			}
		}
	}
	c.Ledger.validateSeal(k)
	c.validateListeners(k)
	c.validateEgress(k)
	c.validateCallers(k)
	c.validateRoutes(k)
}

func flatten(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}

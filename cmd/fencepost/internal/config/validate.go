package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"fencepost/policy"
)

// validate checks what no single value can show. It reports every problem.
func (c *Config) validate(fail func(path, format string, args ...any)) {
	choice := func(path, v string, of ...string) {
		if !slices.Contains(of, v) {
			fail(path, "%q is not one of %s", v, strings.Join(of, ", "))
		}
	}
	positive := func(path string, ok bool) {
		if !ok {
			fail(path, "must be more than zero")
		}
	}
	choice("forwarded", c.Forwarded, "off", "pass", "set", "append")
	choice("log.level", c.Log.Level, "debug", "info", "warn", "error")
	choice("log.format", c.Log.Format, "json", "text")
	choice("ledger.on_rollback", c.Ledger.OnRollback, "refuse", "warn")

	for path, v := range map[string]Duration{
		"ledger.retention": c.Ledger.Retention, "ledger.tombstone": c.Ledger.Tombstone, "ledger.timeout": c.Ledger.Timeout,
		"ledger.sweep_every": c.Ledger.SweepEvery, "limits.header_timeout": c.Limits.HeaderTimeout, "limits.body_timeout": c.Limits.BodyTimeout,
		"limits.idle_timeout": c.Limits.IdleTimeout, "limits.wait": c.Limits.Wait, "upstreams.idle_timeout": c.Upstreams.IdleTimeout,
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
		fail("ledger.owner_deadline", "is %v; below 3s a living owner on a slow ledger would be taken for dead", time.Duration(c.Ledger.OwnerDeadline))
	}
	if c.Ledger.OwnerDeadline < 3*c.Ledger.Timeout {
		fail("ledger.owner_deadline", "is %v, less than three times ledger.timeout (%v): a living owner could not extend it in time", time.Duration(c.Ledger.OwnerDeadline), time.Duration(c.Ledger.Timeout))
	}
	if n := len(c.Ledger.FingerprintKey); n > 0 && n < 16 {
		fail("ledger.fingerprint_key", "has %d characters; use at least 16 random ones", n)
	}
	if n := len(c.Admin.Token); n > 0 && n < 16 {
		fail("admin.token", "has %d characters; use at least 16 random ones", n)
	}
	if err := checkLedgerURL(string(c.Ledger.URL)); err != nil {
		fail("ledger.url", "%v", err)
	}
	for path, file := range map[string]string{"ledger.ca": c.Ledger.CA, "upstreams.ca": c.Upstreams.CA} {
		if file != "" {
			if _, err := os.Stat(file); err != nil {
				fail(path, "%v", err)
			}
		}
	}
	c.validateListeners(fail)
	c.validateCallers(fail)
	c.validateRoutes(fail)
}

// Ledger URL schemes.
var ledgerSchemes = []string{"sqlite", "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}

// checkLedgerURL never repeats the URL: it may hold a password.
func checkLedgerURL(s string) error {
	scheme, _, ok := strings.Cut(s, "://")
	if !ok || !slices.Contains(ledgerSchemes, scheme) {
		return fmt.Errorf("is not a ledger; use sqlite://FILE or one of redis://, rediss://, redis+sentinel://, redis+cluster://")
	}
	return nil
}

func (c *Config) validateListeners(fail func(path, format string, args ...any)) {
	for path, addr := range map[string]string{"listen": c.Listen, "admin.listen": c.Admin.Listen} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			fail(path, "%q is not an address; write HOST:PORT", addr)
			return
		}
	}
	if _, port, _ := net.SplitHostPort(c.Listen); c.Listen == c.Admin.Listen && port != "0" {
		fail("admin.listen", "is the same address as listen")
	}
	if len(c.Callers) == 0 && !c.AllowAnonymous && !Loopback(c.Listen) {
		fail("listen", "%q can be reached from other machines, and no callers are configured. Configure callers, listen on a loopback address, or set allow_anonymous: true if something else keeps strangers out", c.Listen)
	}
	if c.Admin.Token == "" && !Loopback(c.Admin.Listen) {
		fail("admin.listen", "%q can be reached from other machines; set admin.token or listen on a loopback address", c.Admin.Listen)
	}
}

// Loopback reports whether an address can only be reached from this machine.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (c *Config) validateCallers(fail func(path, format string, args ...any)) {
	if _, err := c.PolicyCallers(); err != nil {
		for _, e := range flatten(err) {
			fail("callers", "%v", e)
		}
	}
}

func (c *Config) validateRoutes(fail func(path, format string, args ...any)) {
	if len(c.Routes) == 0 {
		fail("routes", "there are none, so nothing would be served")
		return
	}
	bad := false
	for i := range c.Routes {
		r := &c.Routes[i]
		path := fmt.Sprintf("routes[%d]", i)
		if u, err := url.Parse(r.Upstream); r.Upstream == "" || err != nil || u.Host == "" {
			fail(path+".upstream", "%q is not a URL; write it like https://api.example.com", r.Upstream)
			bad = true
		}
		if !slices.Contains([]string{"reject", "pass", "derive"}, r.Key.Missing) {
			fail(path+".key.missing", "%q is not one of reject, pass, derive", r.Key.Missing)
			bad = true
		}
		if !slices.Contains([]string{"allow", "reject"}, r.Duplicates.SamePayload) {
			fail(path+".duplicates.same_payload", "%q is not one of allow, reject", r.Duplicates.SamePayload)
			bad = true
		}
		if !slices.Contains([]string{"same", "none", "derived"}, r.UpstreamKey.Send) {
			fail(path+".upstream_key.send", "%q is not one of same, none, derived", r.UpstreamKey.Send)
			bad = true
		}
		if !slices.Contains([]string{"fencepost", "external"}, r.Lease.Source) {
			fail(path+".lease.source", "%q is not one of fencepost, external", r.Lease.Source)
			bad = true
		}
		if r.Duplicates.Wait > c.Limits.Wait {
			fail(path+".duplicates.wait", "is %v, more than limits.wait (%v)", time.Duration(r.Duplicates.Wait), time.Duration(c.Limits.Wait))
		}
		bad = c.validateRules(i, fail) || bad
		c.validateWindows(i, fail)
	}
	if bad {
		return
	}
	if _, err := c.PolicyRoutes(); err != nil {
		for _, e := range flatten(err) {
			fail(routePath(c, e), "%v", e)
		}
	}
}

// routePath finds the route that an error of the policy package names.
func routePath(c *Config, err error) string {
	for i := range c.Routes {
		if c.Routes[i].Name != "" && strings.Contains(err.Error(), fmt.Sprintf("%q", c.Routes[i].Name)) {
			return fmt.Sprintf("routes[%d]", i)
		}
	}
	return "routes"
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

// PolicyCallers turns the callers into the policy package's; nil when there are
// none.
func (c *Config) PolicyCallers() (*policy.Callers, error) {
	if len(c.Callers) == 0 {
		return nil, nil
	}
	callers := make([]policy.Caller, len(c.Callers))
	for i, x := range c.Callers {
		callers[i] = policy.Caller{Name: x.Name, Token: string(x.Token)}
	}
	return policy.NewCallers(callers)
}

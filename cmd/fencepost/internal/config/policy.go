package config

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fencepost/policy"
)

// PolicyRoutes turns the routes into the policy package's: those of the reverse
// proxy, and those of the egress proxy.
func (c *Config) PolicyRoutes() (reverse, egress *policy.Table, err error) {
	var routes [2][]policy.Route
	var problems []error
	for _, r := range c.Routes {
		var u *url.URL
		kind := 1
		if r.Upstream != "" {
			var ok bool
			if u, ok = parseUpstream(r.Upstream); !ok {
				return nil, nil, fmt.Errorf("route %q: upstream: is not a URL", r.Name)
			}
			kind = 0
		}
		rule := r.rule(u)
		r.compile(&rule, func(path string, err error) {
			problems = append(problems, fmt.Errorf("route %q: %s: %w", r.Name, path, err))
		})
		routes[kind] = append(routes[kind], rule)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, err
	}
	reverse, err = policy.NewTable(routes[0])
	egress, egressErr := policy.NewTable(routes[1])
	return reverse, egress, errors.Join(err, egressErr)
}

// parseUpstream reads the URL of an upstream. There is no error, which would
// repeat the URL.
func parseUpstream(s string) (*url.URL, bool) {
	u, err := url.Parse(s)
	return u, err == nil && u.Host != ""
}

// rule is the route as the policy package has it, without its expressions.
func (r *Route) rule(upstream *url.URL) policy.Route {
	return policy.Route{
		Name: r.Name, Host: r.Match.Host, Path: r.Match.Path, Upstream: upstream, Egress: upstream == nil, Enforce: r.Enforce, Methods: r.Methods,
		StripPath: r.StripPath, HostField: r.hostField(), Fields: r.fields(), Connect: r.connect(),
		Key: policy.KeyRule{
			Header: r.Key.Header, Window: time.Duration(r.Key.Window),
			Missing: map[string]policy.Missing{"reject": policy.MissingReject, "pass": policy.MissingPass, "derive": policy.MissingDerive}[r.Key.Missing],
		},
		SamePayload: policy.SamePayloadRule{Reject: r.Duplicates.SamePayload == "reject", Window: time.Duration(r.Duplicates.Window)},
		UpstreamKey: policy.UpstreamKeyRule{
			Send:   map[string]policy.UpstreamKeySend{"same": policy.SendSame, "none": policy.SendNone, "derived": policy.SendDerived}[r.UpstreamKey.Send],
			Header: r.UpstreamKey.Header, Deduplicates: time.Duration(r.UpstreamKey.DeduplicatesFor), Methods: r.UpstreamKey.Methods,
		},
		Fingerprint: r.Fingerprint.rule(),
		Wait:        time.Duration(r.Duplicates.Wait), Timeout: time.Duration(r.Timeout),
		Limits: policy.Limits{Request: int64(r.Limits.Request), Response: int64(r.Limits.Response), Parse: int64(r.Limits.Parse)},
		Lease:  policy.LeaseRule{Required: r.Lease.Required, External: r.Lease.Source == "external"},
	}
}

func (f *Fingerprint) rule() policy.FingerprintRule {
	body, _ := policy.ParseBodyKind(f.Body) // checked by validateRoute
	return policy.FingerprintRule{Body: body, Ignore: f.Ignore, Headers: f.Headers}
}

// compile compiles the route's expressions and its lookup, and reads its files, into out.
func (r *Route) compile(out *policy.Route, fail func(path string, err error)) {
	r.readTLS(out, func(path string, err error) { fail("upstream_tls."+path, err) })
	for i, o := range r.Outcomes {
		path := fmt.Sprintf("outcomes[%d]", i)
		when, err := policy.CompileOutcome(o.When)
		if err != nil {
			fail(path+".when", err)
		}
		class, err := policy.ParseClass(o.Class)
		if err != nil {
			fail(path+".class", err)
		}
		out.Outcomes = append(out.Outcomes, policy.OutcomeRule{When: when, Class: class})
	}
	var captured []string
	for _, p := range r.Capture {
		captured = append(captured, p.Name)
		from, err := policy.CompileCapture(p.Value)
		if err != nil {
			fail("capture."+p.Name, err)
		}
		out.Capture = append(out.Capture, policy.CaptureRule{Name: p.Name, From: from})
	}
	if r.Reconcile != nil {
		out.Reconcile = r.Reconcile.compile(captured, func(path string, err error) { fail("reconcile."+path, err) })
	}
}

func (r *Reconcile) compile(captured []string, fail func(path string, err error)) *policy.Reconciler {
	out := &policy.Reconciler{
		Method: r.Lookup.Method, Header: map[string]string{}, Complete: r.Complete, Settle: time.Duration(r.Settle), Status: r.Response.Status,
		Timeout: time.Duration(r.Timeout), Every: time.Duration(r.Every), MaxEvery: time.Duration(r.MaxEvery),
	}
	try := func(path, text string, compile func(string) (*policy.Expr, error)) *policy.Expr {
		if text == "" {
			return nil
		}
		e, err := compile(text)
		if err != nil {
			fail(path, err)
		}
		return e
	}
	var err error
	if out.URL, err = compileURL(r.Lookup.URL, captured); err != nil {
		fail("lookup.url", err)
	}
	if r.Lookup.Method != http.MethodGet && r.Lookup.Method != http.MethodHead {
		fail("lookup.method", errors.New("must be GET or HEAD: a lookup must not act"))
	}
	for _, h := range r.Lookup.Headers {
		out.Header[h.Name] = string(h.Value)
	}
	if r.Confirmed == "" {
		fail("confirmed", errors.New("is required: without it a lookup could never settle anything"))
	}
	if r.Complete && r.NotFound == "" {
		fail("not_found", errors.New("is required where complete is true"))
	}
	if r.Response.Status < 200 || r.Response.Status > 599 {
		fail("response.status", fmt.Errorf("%d is not the status of a final answer", r.Response.Status))
	}
	for path, d := range map[string]Duration{"timeout": r.Timeout, "every": r.Every, "max_every": r.MaxEvery} {
		if d <= 0 {
			fail(path, errors.New("must be more than zero"))
		}
	}
	if r.MaxEvery < r.Every {
		fail("max_every", errors.New("is less than every"))
	}
	out.Confirmed = try("confirmed", r.Confirmed, policy.CompileLookup)
	out.NotFound = try("not_found", r.NotFound, policy.CompileLookup)
	out.Body = try("response.json", r.Response.JSON, policy.CompileLookupValue)
	return out
}

// compileURL compiles the URL of a lookup. No error repeats it: it may hold a
// password, and in one with an @ each part may be it.
func compileURL(text string, captured []string) (*policy.Template, error) {
	t, err := policy.CompileTemplate(text, captured)
	switch {
	case err == nil:
		return t, nil
	case strings.Contains(text, "@"):
		return nil, errors.New("is not an absolute http or https URL with names in braces after its host (it is not shown: it may hold a password)")
	}
	return nil, errors.New(strings.ReplaceAll(err.Error(), strconv.Quote(text), "the URL"))
}

// validateRules reports every expression and lookup that is not usable, at its
// place.
func (c *Config) validateRules(i int, k *checker) {
	route := fmt.Sprintf("routes[%d].", i)
	needs := map[string]string{"reconcile.lookup.url": "capture", "reconcile.not_found": "reconcile.complete", "reconcile.max_every": "reconcile.every"}
	c.Routes[i].compile(&policy.Route{}, func(path string, err error) {
		if other, is := needs[path]; is && !k.ok(route+other) {
			return
		}
		for _, e := range flatten(err) {
			k.fail(route+path, "%v", e)
		}
	})
}

package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"fencepost/policy"
)

// somewhere stands in for an upstream that is not looked at.
var somewhere = &url.URL{Scheme: "https", Host: "upstream.invalid"}

// validateRoutes checks each route on its own, so that one bad route hides nothing
// of the others, and then their names and matches together.
func (c *Config) validateRoutes(k *checker) {
	if len(c.Routes) == 0 {
		k.fail("routes", "there are none, so nothing would be served")
		return
	}
	before := k.found
	for i := range c.Routes {
		c.validateRoute(i, k)
	}
	c.validateNames(k)
	c.validateReach(k)
	if k.found > before || len(k.failed) > 0 {
		return
	}
	if _, _, err := c.PolicyRoutes(); err != nil {
		for _, e := range flatten(err) {
			k.fail("routes", "%v", e)
		}
	}
}

func (c *Config) validateRoute(i int, k *checker) {
	r, path := &c.Routes[i], fmt.Sprintf("routes[%d]", i)
	choice := func(key, v string, of ...string) { k.choice(path+"."+key, v, of...) }
	upstream, ok := parseUpstream(r.Upstream)
	switch {
	case r.Upstream == "" && c.Egress.On():
		upstream = nil // a route of the egress proxy
	case r.Upstream == "" && k.ok("egress"):
		k.fail(path+".upstream", "is missing; write it like https://api.example.com (a route without one is for the egress proxy, which egress.listen turns on)")
		upstream = somewhere
	case !ok:
		k.fail(path+".upstream", "%s is not a URL; write it like https://api.example.com", shownURL(r.Upstream))
		upstream = somewhere
	}
	if _, ok := ProfileText(r.Profile); r.Profile != "" && !ok {
		k.fail(path+".profile", "%s is not a profile; known are %s", shown(r.Profile), strings.Join(ProfileNames(), ", "))
	}
	choice("upstream_http", r.HTTP, "http1", "http2", "h2c")
	choice("key.missing", r.Key.Missing, "reject", "pass", "derive")
	choice("duplicates.same_payload", r.Duplicates.SamePayload, "allow", "reject")
	choice("upstream_key.send", r.UpstreamKey.Send, "same", "none", "derived")
	choice("lease.source", r.Lease.Source, "fencepost", "external")
	choice("fingerprint.body", r.Fingerprint.Body, policy.BodyKinds()...)
	if r.Duplicates.Wait > c.Limits.Wait && k.ok("limits.wait") {
		k.fail(path+".duplicates.wait", "is %v, more than limits.wait (%v)", time.Duration(r.Duplicates.Wait), time.Duration(c.Limits.Wait))
	}
	c.validateRules(i, k)
	c.validateWindows(i, k)
	c.validateIgnore(i, k)

	rule := r.rule(upstream)
	rule.Fingerprint.Ignore = nil // reported above, each at its place
	_, err := policy.NewTable([]policy.Route{rule})
	if err == nil {
		return
	}
	label := fmt.Sprintf("route %q: ", r.Name)
	if r.Name == "" {
		label = "route 1: " // its number in that table, which is not ours
	}
	for _, e := range flatten(err) {
		msg := strings.TrimPrefix(e.Error(), label)
		key, _, _ := strings.Cut(msg, ":")
		if !k.whole(path + "." + key) {
			continue
		}
		if strings.Contains(msg, "@") {
			msg = key + ": " + hidden + " is not usable"
		}
		if k.origin != nil {
			msg += k.origin(path + "." + key)
		}
		if r.Name != "" {
			msg = "route " + shown(r.Name) + ": " + msg
		}
		k.fail(path, "%s", msg)
	}
}

// validateIgnore reports what a route wants to ignore and cannot.
func (c *Config) validateIgnore(i int, k *checker) {
	f, path := &c.Routes[i].Fingerprint, fmt.Sprintf("routes[%d].fingerprint", i)
	body, known := policy.ParseBodyKind(f.Body)
	if !known || !k.ok(path+".body") {
		return
	}
	for j, pointer := range f.Ignore {
		if err := policy.CheckIgnore(body, pointer); err != nil {
			k.fail(fmt.Sprintf("%s.ignore[%d]", path, j), "%s %v", shown(pointer), err)
		}
	}
}

func (c *Config) validateNames(k *checker) {
	first := make(map[string]int)
	for i := range c.Routes {
		name, path := c.Routes[i].Name, fmt.Sprintf("routes[%d].name", i)
		if name == "" || !k.ok(path) {
			continue
		}
		if j, taken := first[name]; taken {
			k.fail(path, "is already taken by routes[%d]", j)
			continue
		}
		first[name] = i
	}
}

// validateReach reports routes that no request can reach, among those whose match
// is usable, whatever else is wrong with them.
func (c *Config) validateReach(k *checker) {
	for _, egress := range []bool{false, true} {
		c.validateReachOf(egress, k)
	}
}

// validateReachOf is validateReach for the routes of one of the two proxies.
func (c *Config) validateReachOf(egress bool, k *checker) {
	var routes []policy.Route
	for i := range c.Routes {
		if (c.Routes[i].Upstream == "") != egress {
			continue
		}
		// Named by its number: names of the file may be missing or taken twice.
		r := policy.Route{Name: fmt.Sprintf("routes-%d", i), Host: c.Routes[i].Match.Host, Path: c.Routes[i].Match.Path, Upstream: somewhere}
		if _, err := policy.NewTable([]policy.Route{r}); err == nil && k.whole(fmt.Sprintf("routes[%d].match", i)) {
			routes = append(routes, r)
		}
	}
	_, err := policy.NewTable(routes)
	if err == nil {
		return
	}
	for _, e := range flatten(err) {
		var late, early string
		if n, _ := fmt.Sscanf(e.Error(), "route %q: match: can never be reached, route %q", &late, &early); n != 2 {
			k.fail("routes", "%v", e)
			continue
		}
		var i, j int
		fmt.Sscanf(late, "routes-%d", &i)
		fmt.Sscanf(early, "routes-%d", &j)
		k.fail(fmt.Sprintf("routes[%d].match", i), "can never be reached, routes[%d] (%s) before it takes every such request", j, shown(c.Routes[j].Name))
	}
}

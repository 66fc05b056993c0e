package proxy

import (
	"maps"
	"slices"
	"sync"

	"fencepost/keystore"
)

// Tally is what a proxy did since it was made, in the words of a person who asks
// afterwards: what was governed, what was not, and what is left to be settled.
type Tally struct {
	// Sent, Replayed, NotSent and Refused count governed requests. NotSent are those
	// whose upstream could not be reached. Refused are those that got another problem
	// instead of an answer, by its code; outcome_unknown is not among them.
	Sent, Replayed, NotSent int
	Refused                 map[string]int
	// Unknown are the operations whose outcome was not known when they were last
	// heard of, oldest first, at most 100.
	Unknown []UnknownOperation
	// Ungoverned counts mutations that were sent on without a key, by method and host
	// ("POST api.example.com"), and Unrouted those that had a key and met no route that
	// governs them, by method, host and path.
	Ungoverned, Unrouted map[string]int
	// Tunnelled counts connections that were not looked into, Reported wishes that were
	// let through because of the mode, Untrusting clients that did not accept the
	// authority, and Unsigned hosts that the authority cannot sign for, each by host.
	Tunnelled, Reported, Untrusting, Unsigned map[string]int
	// RefusedHosts counts wishes to reach what may not be reached, by host and reason:
	// "evil.example (not in egress.allow)".
	RefusedHosts map[string]int
	// Passed counts requests that were sent on and not governed, safe ones included.
	Passed int
	// Told counts requests that were answered, inside the TLS that their client asked
	// for, with why their host may not be reached.
	Told map[string]int
}

// UnknownOperation is an effect that may have happened.
type UnknownOperation struct {
	Key, Method, Host, Path string
	// Lookup is the URL path of its state document.
	Lookup string
}

// tally is a Tally that is being counted.
type tally struct {
	mu sync.Mutex
	t  Tally
	// unknown is by key; order remembers which came first.
	unknown map[keystore.ID]UnknownOperation
	order   []keystore.ID
}

const (
	maxTallied = 1000
	maxUnknown = 100
)

func newTally() *tally { return &tally{unknown: make(map[keystore.ID]UnknownOperation)} }

// count adds one under a name; past a bound, under no name.
func count(m *map[string]int, name string) {
	if *m == nil {
		*m = make(map[string]int)
	}
	if _, known := (*m)[name]; !known && len(*m) >= maxTallied {
		name = "others"
	}
	(*m)[name]++
}

func (t *tally) add(f func(*Tally)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.t)
}

// passed notes a request of the egress proxy that was sent on and not governed.
func (t *tally) passed(method, host, path string, safe, keyed bool) {
	t.add(func(t *Tally) {
		t.Passed++
		switch {
		case safe:
		case keyed:
			count(&t.Unrouted, method+" "+host+path)
		default:
			count(&t.Ungoverned, method+" "+host)
		}
	})
}
func (t *tally) tunnelled(host string)  { t.add(func(t *Tally) { count(&t.Tunnelled, host) }) }
func (t *tally) reported(host string)   { t.add(func(t *Tally) { count(&t.Reported, host) }) }
func (t *tally) told(host string)       { t.add(func(t *Tally) { count(&t.Told, host) }) }
func (t *tally) untrusting(host string) { t.add(func(t *Tally) { count(&t.Untrusting, host) }) }
func (t *tally) unsigned(host string)   { t.add(func(t *Tally) { count(&t.Unsigned, host) }) }
func (t *tally) refused(c code)         { t.add(func(t *Tally) { count(&t.Refused, string(c)) }) }

// refusedHost notes a wish that was not granted, and why in a few words.
func (t *tally) refusedHost(host, why string) {
	t.add(func(t *Tally) { count(&t.RefusedHosts, host+" ("+why+")") })
}

// governed notes a governed request that is over.
func (t *tally) governed(l *line, id keystore.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case l.replayed:
		t.t.Replayed++
	case l.received != 0, l.code == codeUnknown && l.upstream > 0:
		t.t.Sent++
	case l.code == codeUnreachable:
		t.t.NotSent++
	case l.code != "" && l.code != codeUnknown:
		count(&t.t.Refused, string(l.code))
	}
	switch l.reads() {
	case keystore.Unknown:
		if _, known := t.unknown[id]; !known && len(t.order) < maxUnknown {
			t.order = append(t.order, id)
			t.unknown[id] = UnknownOperation{Key: id.Key, Method: l.method, Host: l.host, Path: l.path, Lookup: lookupPath(id.Key)}
		}
	case keystore.Completed, keystore.Abandoned:
		t.settled(id)
	}
}

// settled takes an operation from the list, where that makes room for another. The
// lock is held.
func (t *tally) settled(id keystore.ID) {
	if _, known := t.unknown[id]; known {
		delete(t.unknown, id)
		t.order = slices.DeleteFunc(t.order, func(o keystore.ID) bool { return o == id })
	}
}

// Tally returns what was counted so far.
func (p *Proxy) Tally() Tally {
	t := p.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.t
	for _, m := range []*map[string]int{&out.Refused, &out.Ungoverned, &out.Tunnelled, &out.RefusedHosts, &out.Reported, &out.Untrusting, &out.Told, &out.Unrouted, &out.Unsigned} {
		*m = maps.Clone(*m)
	}
	for _, id := range t.order {
		out.Unknown = append(out.Unknown, t.unknown[id])
	}
	return out
}

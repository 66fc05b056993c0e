package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"fencepost/proxy"
)

// report says what a run governed, what it did not, and what is left to be
// settled. Each line begins with "fencepost:", so that it is told from the
// command's own. ledger is the URL of the ledger, as an argument; own says that the
// run had no configuration file.
func report(w io.Writer, t proxy.Tally, ledger string, own bool) {
	line := func(format string, args ...any) { fmt.Fprintf(w, "fencepost: "+format+"\n", args...) }
	refused := ""
	if len(t.Refused) > 0 {
		refused = " (" + list(t.Refused) + ")"
	}
	line("governed: %d sent, %d replayed, %d refused%s, %d not sent, %d unknown", t.Sent, t.Replayed, sum(t.Refused), refused, t.NotSent, len(t.Unknown))
	for _, u := range t.Unknown {
		line("unknown: %s %s%s under key %s. It may have taken effect; nothing sends it again. See: fencepost ops show %s --ledger %s", u.Method, u.Host, u.Path, strconv.Quote(u.Key), quote(u.Key), ledger)
	}
	if len(t.Unknown) > 0 {
		line("to settle it: fencepost ops resolve KEY --ledger %s --as completed|not_applied|abandoned --reason '…'", ledger)
	}
	if len(t.Ungoverned) > 0 {
		line("NOT governed: %s without a key went straight through: %s", many(sum(t.Ungoverned), "mutation"), list(t.Ungoverned))
		if own {
			line("to govern them, have the client send Idempotency-Key, or derive keys: run with --config and `key: {missing: derive}` on the route (docs/egress.md)")
		}
	}
	if len(t.Unrouted) > 0 {
		line("NOT governed: %s with a key went straight through, because no route governs them: %s", many(sum(t.Unrouted), "mutation"), list(t.Unrouted))
	}
	if len(t.RefusedHosts) > 0 {
		line("refused: %s", list(t.RefusedHosts))
	}
	if len(t.Reported) > 0 {
		line("not allowed, and let through because egress.mode is report: %s", list(t.Reported))
	}
	if len(t.Untrusting) > 0 {
		line("NOT trusted: a client did not accept Fencepost's certificate for %s; nothing of it was sent. See fencepost run --doctor", list(t.Untrusting))
	}
	if len(t.Unsigned) > 0 {
		line("NOT signed: the authority may not sign for %s; nothing of it was sent. See fencepost ca show", list(t.Unsigned))
	}
	if len(t.Tunnelled) > 0 {
		line("tunnelled, and not looked into: %s", list(t.Tunnelled))
	}
	if t.Sent+t.Replayed+t.NotSent+t.Passed+sum(t.Refused)+sum(t.RefusedHosts)+sum(t.Untrusting)+sum(t.Unsigned)+sum(t.Tunnelled) == 0 {
		line("nothing came through the proxy. Local addresses are reached directly (NO_PROXY), and some clients ignore the proxy variables: fencepost run --doctor")
	}
}

// many is a number with its noun.
func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// quote is a value as a shell takes it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// list names what was counted, the most frequent first, at most ten.
func list(m map[string]int) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			return m[b] - m[a]
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for i, name := range names {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
		if m[name] > 1 {
			fmt.Fprintf(&b, " (%d)", m[name])
		}
	}
	return b.String()
}

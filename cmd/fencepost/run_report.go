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
// command's own.
func report(w io.Writer, t proxy.Tally, ledger string, own bool) {
	line := func(format string, args ...any) { fmt.Fprintf(w, "fencepost: "+format+"\n", args...) }
	refused := 0
	for _, n := range t.Refused {
		refused += n
	}
	line("governed: %d sent, %d replayed, %d refused, %d unknown%s", t.Sent, t.Replayed, refused, len(t.Unknown), inParentheses(t.Refused))
	for _, u := range t.Unknown {
		line("unknown: %s %s%s under key %s. It may have taken effect; nothing sends it again. Lookup: $FENCEPOST_URL%s", u.Method, u.Host, u.Path, strconv.Quote(u.Key), u.Lookup)
	}
	if len(t.Unknown) > 0 {
		line("to settle what is unknown: fencepost ops list --ledger %s, then fencepost ops resolve KEY", ledger)
	}
	if n := sum(t.Ungoverned); n > 0 {
		line("NOT governed: %d mutation(s) without a key went straight through: %s", n, list(t.Ungoverned))
		if own {
			line("to govern them, have the client send Idempotency-Key, or derive keys: run with --config and `key: {missing: derive}` on the route (docs/egress.md)")
		}
	}
	if n := sum(t.RefusedHosts); n > 0 {
		line("refused: %d wish(es) to reach %s", n, list(t.RefusedHosts))
	}
	if n := sum(t.Reported); n > 0 {
		line("not allowed, and let through because egress.mode is report: %s", list(t.Reported))
	}
	if n := sum(t.Untrusting); n > 0 {
		line("NOT trusted: a client did not accept Fencepost's certificate for %s; nothing of it was sent. See fencepost run --doctor", list(t.Untrusting))
	}
	if n := sum(t.Tunnelled); n > 0 {
		line("tunnelled, and not looked into: %s", list(t.Tunnelled))
	}
}

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

func inParentheses(m map[string]int) string {
	if len(m) == 0 {
		return ""
	}
	return " (refused: " + list(m) + ")"
}

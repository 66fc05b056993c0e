package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// problems gives what is wrong with a configuration, a line each, without the file.
func problems(t *testing.T, text string) []string {
	t.Helper()
	_, err := Parse("f", []byte(text), noEnv)
	if err == nil {
		return nil
	}
	return strings.Split(strings.ReplaceAll(err.Error(), "f:", ""), "\n")
}

// TestAllProblemsAreReportedTogether: exactly these, each once and in this order.
func TestAllProblemsAreReportedTogether(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // what each line begins with
	}{
		"what cannot be read and what is not valid": {
			"listen: 127.0.0.1:99999\nledger:\n  retention: soon\n  timeout: 0s\nforwarded: sideways\nroutes:\n  - {name: a, upstream: nonsense, timeout: never}\n",
			[]string{"1:1: listen: \"127.0.0.1:99999\" has no usable port", "3:14: ledger.retention: \"soon\"", "4:3: ledger.timeout: must be more", "5:1: forwarded:", "7:15: routes[0].upstream: \"nonsense\"", "7:44: routes[0].timeout: \"never\""}},
		"one bad route hides no other": {
			"routes:\n- {name: a, upstream: nonsense, methods: [GET]}\n- {name: b, upstream: 'http://x', match: {host: 'h:80'}}\n- {name: b, upstream: 'http://x', match: {path: /b}}\n- {name: c, upstream: 'ftp://x', match: {path: /b/c}, outcomes: [{when: '1 +', class: final}]}\n- {upstream: 'http://x', match: {path: /d}}\n",
			[]string{"2:3: routes[0]: route \"a\": methods: GET is safe", "2:13: routes[0].upstream", "3:3: routes[1]: route \"b\": match.host:", "4:4: routes[2].name: is already taken by routes[1]", "4:35: routes[2].match: can never be reached, routes[0] (\"a\")",
				"5:3: routes[3]: route \"c\": upstream: the scheme", "5:34: routes[3].match: can never be reached, routes[0]", "5:67: routes[3].outcomes[0].when: at 1:", "6:3: routes[4]: name: must be", "6:26: routes[4].match: can never be reached, routes[0]"}},
		"a match that was not read covers nothing": {
			"routes:\n- {name: a, upstream: 'http://x', match: [/a]}\n- {name: b, upstream: 'http://x', match: {path: /b}}\n", []string{"2:42: routes[0].match: must be a mapping"}},
		"a misspelt key is not missing as well": {
			"routes:\n- {name: a, upstrem: 'http://x'}\n", []string{"2:13: routes[0]: unknown key \"upstrem\"; did you mean \"upstream\"?"}},
		"another unknown key excuses nothing": {
			"routes:\n- {name: a, colour: red}\n", []string{"2:3: routes[0].upstream: is missing", "2:13: routes[0]: unknown key \"colour\"; known are"}},
		"routes that are no list": {"rotues: []\n", []string{"1:1: unknown key \"rotues\"; did you mean \"routes\"?"}},
		"nothing follows from a window that was not read": {
			"ledger: {retention: 24x}\nlimits: {wait: [1]}\nroutes: [{name: a, upstream: 'http://x', timeout: 48h, duplicates: {wait: 1h}}]\n", []string{"1:21: ledger.retention", "2:16: limits.wait: must be a single"}},
		"nor from a part of it": {
			"ledger: {retention: 30s}\nroutes: [{name: a, upstream: 'http://x', timeout: soon}]\n", []string{"2:51: routes[0].timeout"}},
		"nor from another value": {
			"ledger: {owner_deadline: 5s, timeout: x}\nroutes: [{name: a, upstream: 'http://x', capture: 7, reconcile: {lookup: {url: 'http://x/{captured.o}'}, confirmed: 'true', complete: x, every: x, max_every: 1s}}]\n",
			[]string{"1:39: ledger.timeout", "2:51: routes[0].capture: must be a mapping", "2:135: routes[0].reconcile.complete: must be true", "2:145: routes[0].reconcile.every"}},
		"nor from a secret that is not set": {
			"listen: 0.0.0.0:1\nadmin: {listen: '0.0.0.0:2', token: '${NOPE}'}\ncallers: [{name: a, token: '${NOPE}'}, {name: b, token: short}]\n" + small,
			[]string{"2:37: admin.token: the environment", "3:28: callers[0].token: the environment", "3:40: callers[1]: the token is shorter"}},
		"nor from callers that are no list":   {"listen: 0.0.0.0:1\ncallers: 7\n" + small, []string{"2:10: callers: must be a list"}},
		"nor from whether strangers may call": {"listen: 0.0.0.0:1\nallow_anonymous: maybe\n" + small, []string{"2:18: allow_anonymous: must be"}},
		"nor from a part of a route":          {"routes: [{name: [a], upstream: {b: c}, methods: [POST, [get]]}]\n", []string{"1:17: routes[0].name", "1:", "1:56: routes[0].methods[1]"}},
		"one message once": {
			"ledger: {retention: 30s}\nroutes: [{name: a, upstream: 'http://x', match: {path: /a}}, {name: a, upstream: 'http://x', match: {path: /b}}]\n",
			[]string{"1:10: ledger.retention: is 30s", "2:63: routes[1].name: is already taken by routes[0]"}},
	} {
		got := problems(t, c.text)
		for i := range max(len(got), len(c.want)) {
			if i >= len(got) || i >= len(c.want) || !strings.HasPrefix(got[i], c.want[i]) {
				t.Errorf("%s:\n got %s\nwant %s", name, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
				break
			}
		}
		for range 5 { // the order does not depend on that of a map
			if again := problems(t, c.text); !slices.Equal(got, again) {
				t.Errorf("%s: another order:\n%v\n%v", name, got, again)
			}
		}
	}
}

func TestPortsAreChecked(t *testing.T) {
	for _, port := range []string{"99999", "65536", "abc", "", "-1"} {
		if got := problems(t, fmt.Sprintf("listen: '127.0.0.1:%s'\nadmin: {listen: '127.0.0.1:%s'}\n%s", port, port, small)); len(got) != 2 || !strings.HasPrefix(got[0], "1:1: listen: ") || !strings.HasPrefix(got[1], "2:9: admin.listen: ") || !strings.Contains(got[0], "port") {
			t.Errorf("port %q: %q", port, got)
		}
	}
	for _, text := range []string{"listen: '127.0.0.1:0'\nadmin: {listen: '127.0.0.1:0'}\n", "listen: '[::1]:65535'\n", "listen: '127.0.0.1:http'\n"} {
		if got := problems(t, text+small); got != nil {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := problems(t, "listen: '127.0.0.1:80'\nadmin: {listen: '127.0.0.1:http'}\n"+small); len(got) != 1 || !strings.Contains(got[0], "the same address") {
		t.Errorf("one port in two spellings: %q", got)
	}
}

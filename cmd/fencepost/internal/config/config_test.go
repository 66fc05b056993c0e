package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"fencepost/proxy/ca"
)

const example = "../../../../config.example.yaml"

func noEnv(string) (string, bool) { return "", false }

func exampleConfig(t *testing.T) (*Config, []byte) {
	t.Helper()
	src, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("config.example.yaml", src, func(n string) (string, bool) {
		if n == "FENCEPOST_SEAL_KEY" {
			return sealKeyOfTests, true
		}
		return strings.ReplaceAll("secret-for-"+n, "_", "-"), true
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, src
}

const sealKeyOfTests = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func TestTheExampleIsValidAndShowsTheDefaults(t *testing.T) {
	c, _ := exampleConfig(t)
	want := Default()
	// What the example must show although it is not the default.
	want.Callers = []Caller{{Name: "billing-agent", Token: "secret-for-BILLING-AGENT-TOKEN"}}
	want.Admin.Token = "secret-for-FENCEPOST-ADMIN-TOKEN"
	want.Ledger.FingerprintKey = "secret-for-FENCEPOST-FINGERPRINT-KEY"
	want.Ledger.Seal = []Seal{{"2026-11", sealKeyOfTests}}
	var r Route
	r.defaults()
	r.Outcomes = []Outcome{{"response.status == 200 && response.json.ok == false", "not_applied"}}
	r.Capture = Pairs{{"order", "request.json.order_id"}}
	r.Reconcile = &Reconcile{}
	r.Reconcile.defaults()
	r.Reconcile.Lookup.URL = "https://api.example.com/v1/charges?ref={key}&order={captured.order}"
	r.Reconcile.Lookup.Headers = SecretPairs{{"Authorization", "Bearer secret-for-LOOKUP-TOKEN"}}
	r.Reconcile.Confirmed, r.Reconcile.NotFound, r.Reconcile.Complete = "lookup.status == 200 && size(lookup.json.data) == 1", "lookup.status == 404 || size(lookup.json.data) == 0", true
	r.Reconcile.Response = Response{201, "lookup.json.data[0]"}
	r.Headers = Headers{Set: SecretPairs{{"Authorization", "Bearer secret-for-UPSTREAM-TOKEN"}}, Remove: []string{"X-Internal"}}
	r.Name, r.Upstream, r.Match.Path, r.UpstreamKey.Header = "charges", "https://api.example.com", "/v1/", "Idempotency-Key"
	r.UpstreamKey.Methods = []string{"POST"}
	r.Fingerprint.Headers, r.Fingerprint.Ignore = []string{"Content-Type"}, []string{}
	want.Routes = []Route{r}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("the example is not the defaults:\n got %+v\nwant %+v", c, want)
	}
}

// TestTheExampleNamesEveryKey: a key that is not documented does not exist.
func TestTheExampleNamesEveryKey(t *testing.T) {
	_, src := exampleConfig(t)
	f, err := parser.ParseBytes(src, 0)
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	var walk func(n ast.Node, path string)
	walk = func(n ast.Node, path string) {
		switch x := n.(type) {
		case *ast.MappingNode:
			for _, kv := range x.Values {
				p := strings.TrimPrefix(path+"."+kv.Key.GetToken().Value, ".")
				there[p] = true
				walk(kv.Value, p)
			}
		case *ast.SequenceNode:
			for _, v := range x.Values {
				walk(v, path)
			}
		}
	}
	walk(f.Docs[0].Body, "")
	var missing []string
	var keys func(t reflect.Type, path string)
	keys = func(rt reflect.Type, path string) {
		if rt.Kind() == reflect.Slice || rt.Kind() == reflect.Pointer {
			rt = rt.Elem()
		}
		if rt == reflect.TypeFor[Pair]() || rt == reflect.TypeFor[SecretPair]() {
			return // free names
		}
		if rt.Kind() != reflect.Struct {
			return
		}
		for i := range rt.NumField() {
			p := strings.TrimPrefix(path+"."+rt.Field(i).Tag.Get("yaml"), ".")
			if !there[p] {
				missing = append(missing, p)
			}
			keys(rt.Field(i).Type, p)
		}
	}
	keys(reflect.TypeFor[Config](), "")
	if len(missing) > 0 {
		t.Errorf("config.example.yaml does not show %v", missing)
	}
}

const small = "routes: [{name: all, upstream: 'https://api.example.com'}]\n"

func TestASmallConfigurationHasAllDefaults(t *testing.T) {
	c, err := Parse("f", []byte(small), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	flags, err := FromFlags("https://api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c, flags) {
		t.Errorf("a file and the flag differ:\n%+v\n%+v", c, flags)
	}
	if c.Listen != "127.0.0.1:8080" || c.Ledger.URL != "sqlite://fencepost.db" || time.Duration(c.Routes[0].Timeout) != time.Minute || !c.Routes[0].Enforce {
		t.Errorf("%+v", c)
	}
}

// TestEveryMistakeIsReportedAtItsPlace: all of them, in one run.
func TestEveryMistakeIsReportedAtItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // "line:column: part of the message"
	}{
		"all at once": {"listn: 1\nledger:\n  retention: soon\n  url: 7\nroutes:\n  - name: a\n    upstrem: x\n    limits: {request: 10 potatoes}\n",
			[]string{`1:1: unknown key "listn"`, `3:14: ledger.retention: "soon" is not a duration`, `7:5: routes[0]: unknown key "upstrem"`, `8:23: routes[0].limits.request: "10 potatoes" is not a size`}},
		"suggestion":        {"allowAnonymous: true\n" + small, []string{`1:1: unknown key "allowAnonymous"; did you mean "allow_anonymous"?`}},
		"twice":             {"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n" + small, []string{`2:1`}},
		"not YAML":          {"routes: [\n", []string{"not valid YAML"}},
		"empty":             {"", []string{"the file is empty"}},
		"only comments":     {"# nothing\n", []string{"the file is empty"}},
		"two documents":     {small + "---\n" + small, []string{"a second document"}},
		"a list for a map":  {"ledger: [1]\n" + small, []string{"1:9: ledger: must be a mapping"}},
		"a map for a list":  {"routes: {name: x}\n", []string{"1:9: routes: must be a list"}},
		"null":              {"listen:\n" + small, []string{"listen: has no value"}},
		"anchor":            {"listen: &a 127.0.0.1:1\n" + small, []string{"anchors, aliases"}},
		"negative":          {"ledger: {retention: -1h}\n" + small, []string{"is negative"}},
		"zero":              {"ledger: {retention: 0s}\n" + small, []string{"ledger.retention: must be more than zero"}},
		"not a bool":        {"allow_anonymous: maybe\n" + small, []string{"must be true or false"}},
		"not a number":      {"limits: {waiters: many}\n" + small, []string{"must be a whole number"}},
		"secret not set":    {"admin: {token: '${NOPE}'}\n" + small, []string{"1:16: admin.token: the environment variable NOPE is not set"}},
		"env in no secret":  {"listen: '${ADDR}'\n" + small, []string{"1:9: listen: ${…} is for secrets only"}},
		"short token":       {"admin: {token: short}\n" + small, []string{"admin.token: has 5 characters"}},
		"no routes":         {"listen: 127.0.0.1:1\n", []string{"routes: there are none"}},
		"no upstream":       {"routes: [{name: a}]\n", []string{"routes[0].upstream"}},
		"bad upstream":      {"routes: [{name: a, upstream: 'ftp://x'}]\n", []string{"1:10: routes[0]:"}},
		"bad choice":        {"routes: [{name: a, upstream: 'http://x', key: {missing: ignore}}]\n", []string{`"ignore" is not one of reject, pass, derive`}},
		"twice one name":    {"routes:\n- {name: a, upstream: 'http://x', match: {path: /a}}\n- {name: a, upstream: 'http://x', match: {path: /b}}\n", []string{"routes[0]"}},
		"reachable":         {"listen: 0.0.0.0:8080\n" + small, []string{"1:1: listen: \"0.0.0.0:8080\" can be reached from other machines, and no callers"}},
		"reachable by name": {"listen: ':8080'\n" + small, []string{"can be reached from other machines"}},
		"reachable admin":   {"admin: {listen: '0.0.0.0:8081'}\n" + small, []string{"set admin.token"}},
		"one port twice":    {"admin: {listen: '127.0.0.1:8080'}\n" + small, []string{"the same address"}},
		"no port":           {"listen: localhost\n" + small, []string{"write HOST:PORT"}},
		"bad ledger":        {"ledger: {url: 'mysql://user:hunter2secret@x'}\n" + small, []string{"ledger.url: is not a ledger"}},
		"retention too short": {"ledger: {retention: 61s}\nroutes: [{name: a, upstream: 'http://x', timeout: 60s, duplicates: {wait: 1s}}]\n",
			[]string{"1:10: ledger.retention: is 1m1s, which is not longer than the recovery window of route \"a\", 1m1s (timeout 1m0s + duplicates.wait 1s)"}},
		"retention shorter than recovery": {"ledger: {retention: 1h}\nroutes: [{name: a, upstream: 'http://x', reconcile: {lookup: {url: 'http://x/{key}'}, confirmed: 'true'}}]\n",
			[]string{"ledger.retention: is 1h0m0s, which is not longer than the recovery window", "reconcile.max_every 1h0m0s"}},
		"the upstream forgets first":          {"routes: [{name: a, upstream: 'http://x', upstream_key: {deduplicates_for: 30s}}]\n", []string{"routes[0].upstream_key.deduplicates_for: is 30s, which is not longer"}},
		"a derived key that is gone too soon": {"routes: [{name: a, upstream: 'http://x', key: {missing: derive, window: 30s}}]\n", []string{"routes[0].key.window: is 30s, which is not longer than the recovery window of the route, 1m0s"}},
		"no key to recognise":                 {"routes: [{name: a, upstream: 'http://x', upstream_key: {send: none, deduplicates_for: 24h}}]\n", []string{"the upstream gets no key"}},
		"bad expressions, all of them": {"routes:\n- name: a\n  upstream: http://x\n  outcomes:\n  - {when: 'response.status ==', class: maybe}\n  capture: {o: 'reqest.json.o'}\n  reconcile:\n    lookup: {url: 'http://x/{captured.p}', method: POST}\n    confirmed: 'lookup.status'\n    not_found: '1 + 1'\n    response: {json: 'nope'}\n",
			[]string{"5:6: routes[0].outcomes[0].when: at 1:", "routes[0].outcomes[0].class: \"maybe\"", "6:16: routes[0].capture.o: at 1:1 of the expression: undeclared", "8:14: routes[0].reconcile.lookup.url: {captured.p} is not captured", "must be GET or HEAD", "routes[0].reconcile.not_found: at 1:1 of the expression: it gives int", "routes[0].reconcile.response.json: at 1:1"}},
		"bad fingerprints": {"routes:\n- {name: a, upstream: 'http://x', match: {path: /a}, fingerprint: {body: xml, ignore: [/ts]}}\n- name: b\n  upstream: http://x\n  fingerprint:\n    body: form\n    ignore:\n    - /fine\n    - fine\n    - /a/b\n    - ''\n    headers: [Cookie]\n  match: {path: /b}\n- {name: c, upstream: 'http://x', match: {path: /c}, fingerprint: {ignore: [/ts]}}\n",
			[]string{`2:68: routes[0].fingerprint.body: "xml" is not one of raw, json, form, multipart, auto`, `9:7: routes[1].fingerprint.ignore[1]: "fine" is not a JSON Pointer`, `10:7: routes[1].fingerprint.ignore[2]: "/a/b" has more than one part`, `11:7: routes[1].fingerprint.ignore[3]: "" is the whole body`, `fingerprint.headers: Cookie is a credential`, `14:77: routes[2].fingerprint.ignore[0]: "/ts" cannot be ignored where bodies are compared byte by byte`}},
		"reconcile without a condition":     {"routes: [{name: a, upstream: 'http://x', reconcile: {lookup: {url: 'http://x/{key}'}, complete: true}}]\n", []string{"reconcile.confirmed: is required", "reconcile.not_found: is required where complete"}},
		"owner deadline below the ledger's": {"ledger: {owner_deadline: 5s, timeout: 2s}\n" + small, []string{"less than three times ledger.timeout"}},
		"wait over the limit":               {"limits: {wait: 1s}\nroutes: [{name: a, upstream: 'http://x', duplicates: {wait: 2s}}]\n", []string{"more than limits.wait"}},
		"half a certificate":                {"tls: {cert: /dev/null}\n" + small, []string{"1:1: tls: needs both cert and key"}},
		"a protocol that is none":           {"routes: [{name: a, upstream: 'http://x', upstream_http: http3}]\n", []string{`"http3" is not one of http1, http2, h2c`}},
		"HTTP/2 without TLS":                {"routes: [{name: a, upstream: 'http://x', upstream_http: http2}]\n", []string{"upstream_http: http2 is negotiated by TLS"}},
		"h2c with TLS":                      {"routes: [{name: a, upstream: 'https://x', upstream_http: h2c}]\n", []string{"upstream_http: h2c is HTTP/2 without TLS"}},
		"TLS without TLS":                   {"routes: [{name: a, upstream: 'http://x', upstream_tls: {server_name: y}}]\n", []string{"upstream_tls: the upstream is http"}},
		"no such authority":                 {"routes: [{name: a, upstream: 'https://x', upstream_tls: {ca: /nope.pem}}]\n", []string{"1:58: routes[0].upstream_tls.ca: open /nope.pem"}},
		"an authority that is none":         {"routes: [{name: a, upstream: 'https://x', upstream_tls: {ca: /dev/null}}]\n", []string{"routes[0].upstream_tls.ca: the file holds no certificate"}},
		"a certificate without a key":       {"routes: [{name: a, upstream: 'https://x', upstream_tls: {cert: /dev/null}}]\n", []string{"cert and key go together"}},
		"strip what is not there":           {"routes: [{name: a, upstream: 'http://x', match: {path: /v1/}, strip_path: /v2}]\n", []string{"strip_path: must be the beginning of match.path"}},
		"a host that is none":               {"routes: [{name: a, upstream: 'http://x', host: 'a b'}]\n", []string{"host: must be upstream, client, or a host name"}},
		"fields that are not to be changed": {"routes: [{name: a, upstream: 'http://x', headers: {set: {Content-Length: '1', Fencepost-Lease: x, Idempotency-Key: k, X-Ok: \"a\\nhunter2secret\"}, remove: [Connection, 'a b', X-Ok]}}]\n",
			[]string{"Content-Length is set on the way", "Fencepost-Lease is one of", "Idempotency-Key holds the key", "the value of X-Ok has a control", "Connection is hop-by-hop", `"a b" is not a field name`, "X-Ok is set too"}},
		"seals": {"ledger:\n  seal:\n  - {id: a, key: hunter2secret}\n  - {id: b c, key: " + sealKeyOfTests + "}\n  - {id: a, key: " + strings.Repeat("0f", 32) + "}\n" + small,
			[]string{"3:13: ledger.seal[0].key: is not 32 bytes in base64 or hexadecimal", "4:6: ledger.seal[1].id: must be 1 to 32", "5:6: ledger.seal[2].id: is already taken"}},
		"egress without its authority": {"egress: {listen: '127.0.0.1:0', ca: {dir: /nope}}\n" + small, []string{"1:38: egress.ca.dir:", "fencepost ca init"}},
		"egress mistakes": {"egress: {listen: '0.0.0.0:3128', mode: maybe, allow: ['https://x', '*.1.2.3.4'], allow_cidrs: [10.0.0.1/8, 10.0.0.0.0], ports: [0], parent: 'socks5://user:hunter2secret@x', max_tunnels: 0, ca: {dir: /tmp}}\nroutes: [{name: a}, {name: b, strip_path: /x, match: {path: /x}}]\n",
			[]string{`"maybe" is not one of enforce, report`, "1:129: egress.ports[0]: 0 is not a port", "egress.allow[0]: \"https://x\" is not a host name", "egress.allow[1]: an address has no names below it", "did you mean 10.0.0.0/8", `"10.0.0.0.0" is not a range`, "egress.parent: is not a proxy's URL", "egress.max_tunnels: must be more than zero", "can be reached from other machines", "strip_path, host: are for routes with an upstream"}},
		"callers that clash": {"callers: [{name: a, token: '0123456789abcdef'}, {name: a, token: '0123456789abcdeg'}]\n" + small, []string{"callers"}},
	} {
		_, err := Parse("f.yaml", []byte(c.text), noEnv)
		var p *Problems
		if !errors.As(err, &p) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is missing in\n%v", name, w, err)
			}
		}
		if strings.Contains(err.Error(), "hunter2secret") {
			t.Errorf("%s: a password is in the error", name)
		}
		if !slices.IsSortedFunc(p.List, func(a, b Problem) int { return a.Line - b.Line }) {
			t.Errorf("%s: not in the file's order:\n%v", name, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "7B": 7, "64KiB": 64 << 10, "10 MiB": 10 << 20, "1GiB": 1 << 30, "5MB": 5e6, "1kB": 1000} {
		var n Bytes
		if err := n.UnmarshalText([]byte(text)); err != nil || int64(n) != want {
			t.Errorf("%s: %d %v", text, n, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "9999999999999GiB", "1 MiB MiB"} {
		var n Bytes
		if err := n.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, n)
		}
	}
}

func TestASecretIsNeverPrinted(t *testing.T) {
	c, err := Parse("f", []byte("admin: {token: 'hunter2-hunter2-hunter2'}\ncallers: [{name: a, token: '${X}'}]\n"+small), func(string) (string, bool) { return "hunter2-hunter2-hunter3", true })
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), c.Admin.Token.String()} {
		if strings.Contains(s, "hunter2") {
			t.Errorf("printed: %s", s)
		}
	}
}

func TestExpand(t *testing.T) {
	env := func(n string) (string, bool) { return map[string]string{"A": "1", "B": "${A}"}[n], n != "C" }
	if got, err := Expand("redis://:${A}@h/${B}", env); err != nil || got != "redis://:1@h/${A}" {
		t.Errorf("%q %v", got, err)
	}
	for _, s := range []string{"${C}", "${", "${}", "${A"} {
		if _, err := Expand(s, env); err == nil {
			t.Errorf("%q was expanded", s)
		}
	}
}

func TestLoadSaysWhichFileIsMissing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "nope.yaml")
	if _, err := Load(name); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("%v", err)
	}
}

func TestWhatAReloadCannotChangeIsNamed(t *testing.T) {
	a, _ := Parse("f", []byte("callers: [{name: b, token: '0123456789abcdef'}]\n"+small), noEnv)
	b, _ := Parse("f", []byte("listen: 127.0.0.1:9\nledger: {timeout: 1s}\ncallers: [{name: a, token: '0123456789abcdef'}]\nroutes: [{name: b, upstream: 'http://x'}]\n"), noEnv)
	if got := fmt.Sprint(a.Fixed(b)); got != "[listen ledger]" {
		t.Errorf("%s", got)
	}
}

func TestAReloadMustNotMoveEveryKeyToAnotherScope(t *testing.T) {
	none := &Config{}
	some := &Config{Callers: []Caller{{Name: "a"}, {Name: "b"}, {Name: "C"}}}
	other := &Config{Callers: []Caller{{Name: "c"}, {Name: "b"}}}
	for _, c := range []struct {
		from, to    *Config
		fixed, lost string
	}{
		{none, none, "[]", "[]"},
		{none, some, "[callers (none to some, or back)]", "[]"},
		{some, none, "[callers (none to some, or back)]", "[a b C]"},
		{some, other, "[]", "[a C]"}, // names are scopes, letter by letter
		{some, some, "[]", "[]"},
	} {
		if got := fmt.Sprint(c.from.Fixed(c.to)); got != c.fixed {
			t.Errorf("%v to %v: fixed %s, want %s", c.from.Callers, c.to.Callers, got, c.fixed)
		}
		if got := fmt.Sprint(c.from.LostCallers(c.to)); got != c.lost {
			t.Errorf("%v to %v: lost %s, want %s", c.from.Callers, c.to.Callers, got, c.lost)
		}
	}
}

// TestTheDocumentsConfigurationsAreValid: what a reader copies must be accepted.
func TestTheDocumentsConfigurationsAreValid(t *testing.T) {
	checked, folder := 0, t.TempDir()
	if _, err := ca.Init(folder, ca.Options{}); err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(folder, ca.CertFile), filepath.Join(folder, ca.KeyFile)
	files := strings.NewReplacer("/etc/fencepost/ca", folder, "server.pem", cert, "client.pem", cert, "bank-ca.pem", cert, "server.key", key, "client.key", key)
	for _, file := range []string{"README.md", "docs/recovery.md", "docs/operations.md", "docs/clients.md", "docs/providers.md", "docs/fingerprints.md", "docs/fidelity.md", "docs/egress.md"} {
		text, err := os.ReadFile(filepath.Join("../../../..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			if !strings.Contains(block, "routes:") {
				continue // a part of a route
			}
			checked++
			block = files.Replace(block)
			if _, err := Parse(file, []byte(block), func(n string) (string, bool) {
				if strings.HasPrefix(n, "FENCEPOST_SEAL_KEY") {
					return sealKeyOfTests, true
				}
				return "secret-for-" + strings.ReplaceAll(n, "_", "-"), true
			}); err != nil {
				t.Errorf("%v\n%s", err, block)
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d configurations found", checked)
	}
}

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAnOperatorWorksFromTheShell: list, show, response and resolve against a
// running proxy.
func TestAnOperatorWorksFromTheShell(t *testing.T) {
	up := newProvider(t)
	const token = "admin-token-0123456789"
	file := configFile(t, up.URL, "sqlite://"+filepath.Join(t.TempDir(), "l.db"), "")
	text, _ := os.ReadFile(file)
	os.WriteFile(file, []byte(strings.Replace(string(text), "admin: {listen: '127.0.0.1:0'}", "admin: {listen: '127.0.0.1:0', token: '${FENCEPOST_ADMIN_TOKEN}'}", 1)), 0o600)
	p := launch(t, []string{"FENCEPOST_ADMIN_TOKEN=" + token}, "serve", "--config", file)
	run := func(code int, want string, args ...string) string {
		t.Helper()
		args = append(args, "--admin", p.admin)
		cmd := exec.Command(binary(t), append([]string{"ops"}, args...)...)
		cmd.Env = append(os.Environ(), "FENCEPOST_ADMIN_TOKEN="+token)
		out, _ := cmd.CombinedOutput()
		if c := cmd.ProcessState.ExitCode(); c != code || !strings.Contains(string(out), want) {
			t.Errorf("ops %v: exit %d, want %d with %q\n%s", args, c, code, want, out)
		}
		if strings.Contains(string(out), token) {
			t.Errorf("ops %v prints the token", args)
		}
		return string(out)
	}
	run(0, "No operation reads unknown.", "list")
	up.mu.Lock()
	up.after = func(string) { up.CloseClientConnections() } // the effect happens, the answer is lost
	up.mu.Unlock()
	for _, k := range []string{"a/1", "b", "c"} {
		if r := p.post(k, "x"); r.status != 502 || r.code() != "outcome_unknown" {
			t.Fatalf("%+v", r)
		}
	}
	up.mu.Lock()
	up.after = nil
	up.mu.Unlock()
	list := run(0, "KEY", "list")
	for _, k := range []string{"a/1", "b", "c", "sent, but the upstream closed the connection"} {
		if !strings.Contains(list, k) {
			t.Errorf("%q is missing in\n%s", k, list)
		}
	}
	var page struct{ Operations []operation }
	if err := json.Unmarshal([]byte(run(0, "{", "list", "--json", "--limit", "2")), &page); err != nil || len(page.Operations) != 2 {
		t.Errorf("%v %+v", err, page)
	}
	run(0, "UNKNOWN: The request was sent", "show", "a/1")
	run(0, "dispatched → unknown  doubt by ", "show", "a/1")
	run(1, "No response is recorded", "response", "a/1")
	run(1, "say --as", "resolve", "a/1")
	run(1, "--reason is required", "resolve", "a/1", "--as", "completed")
	run(1, "not one of completed", "resolve", "a/1", "--as", "done", "--reason", "r")
	run(1, "No operation with this key", "show", "nothing")
	run(2, "name the key", "show")
	run(2, `no subcommand "frob"`, "frob")

	body := filepath.Join(t.TempDir(), "body.json")
	os.WriteFile(body, []byte(`{"id":"ch_1"}`), 0o600)
	run(0, "COMPLETED", "resolve", "a/1", "--as", "completed", "--reason", "dashboard", "--actor", "dana", "--response", body, "--status", "201")
	run(0, "resolve by operator dana: dashboard", "show", "a/1")
	if r := p.post("a/1", "x"); r.status != 201 || r.body != `{"id":"ch_1"}` {
		t.Errorf("%+v", r)
	}
	run(0, `{"id":"ch_1"}`, "response", "a/1")
	whole := filepath.Join(t.TempDir(), "whole.http")
	os.WriteFile(whole, []byte("HTTP/1.1 202 Accepted\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"), 0o600)
	run(0, "COMPLETED", "resolve", "b", "--as", "completed", "--reason", "r", "--response", whole)
	if r := p.post("b", "x"); r.status != 202 || r.body != "hello" || r.header.Get("Content-Type") != "text/plain" {
		t.Errorf("%+v", r)
	}
	run(1, "It was settled as completed", "resolve", "b", "--as", "abandoned", "--reason", "r")
	run(0, "RESERVED", "resolve", "c", "--as", "not_applied", "--reason", "not in the dashboard")
	if r := p.post("c", "x"); r.status != 201 || r.body != "effect 2 of c" {
		t.Errorf("%+v", r)
	}
	cmd := exec.Command(binary(t), "ops", "list", "--admin", p.admin)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "caller is not known") {
		t.Errorf("without the token: %v %s", err, out)
	}
	cmd = exec.Command(binary(t), "ops", "list", "--admin", "http://127.0.0.1:1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no answer from the proxy: nothing listens at") {
		t.Errorf("nobody there: %v %s", err, out)
	}
}

// TestALeaseFromTheShell: on both ledgers, tokens grow across release, expiry
// and restart.
func TestALeaseFromTheShell(t *testing.T) {
	for _, kind := range []string{"sqlite", "redis"} {
		t.Run(kind, func(t *testing.T) {
			ledger := "sqlite://" + filepath.Join(t.TempDir(), "l.db")
			if kind == "redis" {
				ledger = startRedis(t).url
			}
			up := newProvider(t)
			file := configFile(t, up.URL, ledger, "")
			p := launch(t, nil, "serve", "--config", file)
			run := func(code int, stdout, stderr string, args ...string) {
				t.Helper()
				cmd := exec.Command(binary(t), append([]string{"lease"}, args...)...)
				cmd.Env = append(os.Environ(), "FENCEPOST_URL="+p.url)
				var errs strings.Builder
				cmd.Stderr = &errs
				out, _ := cmd.Output()
				if c := cmd.ProcessState.ExitCode(); c != code || string(out) != stdout || !strings.Contains(errs.String(), stderr) {
					t.Errorf("lease %v: exit %d, %q, %q", args, c, out, errs.String())
				}
			}
			run(0, "1\n", "held by w1", "acquire", "run-1", "--owner", "w1")
			run(1, "", `held by "w1" until`, "acquire", "run-1", "--owner", "w2")
			run(0, "", "token 1, held by w1", "renew", "run-1", "--token", "1", "--ttl", "1m")
			run(0, "", "held by w1", "show", "run-1")
			run(1, "", "not its current lease", "release", "run-1", "--token", "7")
			run(0, "", "released", "release", "run-1", "--token", "1")
			run(0, "2\n", "held by w2", "acquire", "run-1", "--owner", "w2", "--ttl", "1s")
			eventually(t, "the lease expires", func() bool {
				return strings.Contains(send("GET", p.url+"/_fencepost/v1/leases/run-1", "", "").body, `"held": false`)
			})
			run(1, "", "not its current lease", "renew", "run-1", "--token", "2")
			p.signal(syscall.SIGKILL)
			p.ended()
			p = launch(t, nil, "serve", "--config", file)
			run(0, "3\n", "held by w1", "acquire", "run-1", "--owner", "w1")
			run(1, "", "No lease was ever given", "show", "run-2")
			run(1, "", "--owner is required", "acquire", "run-2")
			run(2, "", "name the run", "show")
			run(2, "", "no subcommand", "frob")
			for token, status := range map[string]int{"2": 412, "3": 201} {
				req, _ := http.NewRequest("POST", p.url+"/v1/charges", strings.NewReader("x"))
				req.Header.Set("Idempotency-Key", "k"+token)
				req.Header.Set("Fencepost-Lease", `"run-1";token=`+token)
				resp, err := testClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != status {
					t.Errorf("token %s: %d", token, resp.StatusCode)
				}
			}
			if _, n := up.counts("k2"); n != 0 {
				t.Error("a stale worker's request was sent")
			}
		})
	}
}

// TestTokensGrowAfterALeaseIsGone: somebody deleted the run's lease from Redis.
func TestTokensGrowAfterALeaseIsGone(t *testing.T) {
	server := startRedis(t)
	up := newProvider(t)
	p := launch(t, nil, "serve", "--config", configFile(t, up.URL, server.url, ""))
	acquire := func() string {
		return send("POST", p.url+"/_fencepost/v1/leases/run-1", "", `{"owner":"w","ttl":"1s"}`).body
	}
	if b := acquire(); !strings.Contains(b, `"token": 1,`) {
		t.Fatal(b)
	}
	out, err := exec.Command("redis-cli", "-p", strings.TrimSuffix(server.url[strings.LastIndex(server.url, ":")+1:], "/0"), "EVAL",
		"local n = 0 for _, k in ipairs(redis.call('KEYS', '*run-1*')) do n = n + redis.call('DEL', k) end return n", "0").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1") {
		t.Fatalf("%v %s", err, out)
	}
	if b := acquire(); !strings.Contains(b, `"token": 2,`) {
		t.Error(b)
	}
}

// TestAStatusNeedsItsResponse: a decision is final, so nothing of what was said may
// be left out of it.
func TestAStatusNeedsItsResponse(t *testing.T) {
	for _, flag := range []string{"--status=201", "--content-type=text/plain"} {
		out, err := exec.Command(binary(t), "ops", "resolve", "k", "--as", "completed", "--reason", "r", flag, "--admin", "http://127.0.0.1:1").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--response FILE") {
			t.Errorf("%s: %v: %s", flag, err, out)
		}
	}
}

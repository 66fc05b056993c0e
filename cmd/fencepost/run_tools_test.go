package main

import (
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const whyRefused = `The host "other.example.test" is not one that may be reached. See egress.allow and routes in Fencepost's configuration.`

// TestRunGit: over smart HTTP, a refusal shows its reason, and a repository behind
// a host that is looked into is cloned from and pushed to.
func TestRunGit(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("git", "--exec-path").Output()
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if err == nil {
		_, err = os.Stat(backend)
	}
	if err != nil {
		unavailable(t, "git-http-backend", err)
	}
	w := newWorld(t)
	repositories := filepath.Join(w.dir, "git")
	w.instead = &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + repositories, "GIT_HTTP_EXPORT_ALL=1"}, Stderr: discardLog.Writer(), Logger: discardLog}
	config := w.config("- {name: api, match: {host: api.example.test}, key: {missing: pass}}\n", "")
	env := append(w.trusting(), "HOME="+w.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.test")
	r := runIn(t, env, "--config", config, "--", "sh", "-ec", `
		git init -q --bare `+repositories+`/r.git
		git -C `+repositories+`/r.git config http.receivepack true
		cd `+w.dir+`
		git init -q -b main one
		cd one
		head -c 3000000 /dev/urandom > large
		git add large
		git commit -q -m first
		git push -q https://api.example.test/r.git main
		cd ..
		git clone -q -b main https://api.example.test/r.git two
		cmp one/large two/large
		git -C two ls-remote --exit-code https://api.example.test/r.git main
		# These are refused.
		git ls-remote https://other.example.test/r.git && exit 9
		git -C two push https://other.example.test/r.git main && exit 9
		exit 0
	`)
	if r.code != 0 || !strings.Contains(r.stdout, "refs/heads/main") {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if n := strings.Count(r.stderr, "remote: "+whyRefused); n != 2 {
		t.Errorf("git shows the reason %d times:\n%s", n, r.stderr)
	}
}

// TestRunNpm: a registry that is refused shows the reason; one that is looked into
// works.
func TestRunNpm(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		unavailable(t, "npm", err)
	}
	w := newWorld(t)
	w.handle = func(rw http.ResponseWriter, r *http.Request, _ int) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Write([]byte("{}"))
	}
	config := w.config(governedRoute, "")
	if err := os.WriteFile(filepath.Join(w.dir, "package.json"), []byte(`{"name":"fencepost-test","version":"1.0.0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(w.trusting(), "HOME="+w.dir, "NPM_CONFIG_GLOBALCONFIG=/none", "npm_config_fetch_retries=0", "npm_config_update_notifier=false")
	r := runIn(t, env, "--config", config, "--", "sh", "-c", `
		cd `+w.dir+`
		npm ping --registry https://api.example.test/ || exit
		npm ping --registry https://other.example.test/ && exit 9
		npm publish --registry https://other.example.test/ --//other.example.test/:_authToken=x && exit 9
		exit 0
	`)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.code != 0 || w.arrivals["api.example.test"] == 0 || w.arrivals["other.example.test"] != 0 {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if n := strings.Count(r.stderr, "npm notice "+whyRefused); n != 2 {
		t.Errorf("npm shows the reason %d times:\n%s", n, r.stderr)
	}
}

// TestRunSaysWhyANameIsRefused: one that is allowed, and leads to an address that is
// not. Clients show what they hear inside the tunnel, and not what a CONNECT is
// answered with.
func TestRunSaysWhyANameIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		unavailable(t, "curl", err)
	}
	w := newWorld(t)
	config := w.config(governedRoute, ", allow: [localhost, 127.0.0.1]")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	// Without the parent: here it is this proxy that resolves names.
	if err := os.WriteFile(config, []byte(strings.Replace(string(text), w.intoWorld(), "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1"} {
		for _, option := range []string{"--http1.1", "--http2"} {
			r := runIn(t, nil, "--config", config, "--", "sh", "-c", "NO_PROXY= no_proxy= curl -sS "+option+" -w '%{http_code}' https://"+host+"/")
			if r.code != 0 || !strings.HasSuffix(r.stdout, "403") || !strings.Contains(r.stdout, "egress.allow_cidrs opens those that are meant to be reached") {
				t.Errorf("%s %s: exit code %d\n%s\n%s", option, host, r.code, r.stdout, r.stderr)
			}
		}
	}
}

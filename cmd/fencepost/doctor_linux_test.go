package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// seen is what the doctor's table says of a client: goes through, trusts.
type seen struct{ through, trusts string }

// doctor runs fencepost run --doctor without a network, and returns its exit code
// and table.
func doctor(t *testing.T, path string, args ...string) (code int, table map[string]seen, stdout string) {
	t.Helper()
	cmd := offline(t, binary(t), append([]string{"run", "--doctor"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+path, "TMPDIR="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	table = map[string]seen{}
	head, rest, _ := strings.Cut(out.String(), "\n")
	for l := range strings.Lines(rest) {
		// Names hold a blank, columns are two apart.
		var f []string
		for _, s := range strings.Split(l, "  ") {
			if s = strings.TrimSpace(s); s != "" {
				f = append(f, s)
			}
		}
		if len(f) < 3 {
			break
		}
		table[f[0]] = seen{f[1], f[2]}
	}
	if !strings.HasPrefix(head, "CLIENT") {
		t.Fatalf("no table:\n%s\n%s", out.String(), errs.String())
	}
	if left, _ := os.ReadDir(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "TMPDIR=")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return cmd.ProcessState.ExitCode(), table, out.String()
}

func TestDoctorLooksAtWhatIsHere(t *testing.T) {
	t.Parallel()
	code, table, out := doctor(t, os.Getenv("PATH"), "--", "/usr/bin/agent")
	want := exitOK
	for name, s := range table {
		if s != (seen{"yes", "yes"}) {
			want = exitFailed
			// Node before 22.21 knows of no proxy, and aiohttp has to be told.
			if !strings.HasPrefix(name, "node ") && name != "python aiohttp" {
				t.Errorf("%s: %+v", name, s)
			}
		}
	}
	if code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	for _, cl := range clients {
		if _, shown := table[cl.name]; shown != cl.here() {
			t.Errorf("%s is here: %v, and in the table: %v", cl.name, cl.here(), shown)
		}
	}
	if !strings.Contains(out, "What agent uses, only its own code says") {
		t.Errorf("%s", out)
	}
}

// TestDoctorTellsWhatIsWrong: a client that goes its own way, and one that does not
// trust the authority, each with the exit code that a script needs.
func TestDoctorTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		unavailable(t, "curl", err)
	}
	good := seen{"yes", "yes"}
	for name, c := range map[string]struct {
		script string
		code   int
		want   map[string]seen
	}{
		"nothing but itself": {"", exitOK, map[string]seen{"go net/http": good}},
		"a good one":         {`exec ` + curl + ` "$@"`, exitOK, map[string]seen{"go net/http": good, "curl": good}},
		"one of no proxy":    {`exec ` + curl + ` --noproxy '*' "$@"`, exitFailed, map[string]seen{"go net/http": good, "curl": {"NO", "-"}}},
		"one without trust":  {`unset CURL_CA_BUNDLE SSL_CERT_FILE SSL_CERT_DIR; exec ` + curl + ` "$@"`, exitFailed, map[string]seen{"go net/http": good, "curl": {"yes", "NO"}}},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if c.script != "" {
				if err := os.WriteFile(filepath.Join(bin, "curl"), fmt.Appendf(nil, "#!/bin/sh\n%s\n", c.script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if code, table, out := doctor(t, bin); code != c.code || !maps.Equal(table, c.want) {
				t.Errorf("exit code %d, %+v\n%s", code, table, out)
			}
		})
	}
}

// TestDoctorFindsANewerNodeGood: NODE_USE_ENV_PROXY is all that it needs.
func TestDoctorFindsANewerNodeGood(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.Symlink(onNode24("https")(t)[0], filepath.Join(bin, "node")); err != nil {
		t.Fatal(err)
	}
	good := seen{"yes", "yes"}
	if code, table, out := doctor(t, bin); code != exitOK || !maps.Equal(table, map[string]seen{"go net/http": good, "node https": good, "node fetch": good}) {
		t.Errorf("exit code %d, %+v\n%s", code, table, out)
	}
}

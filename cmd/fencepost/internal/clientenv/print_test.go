package clientenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// awkward are values that a careless printer would spoil.
var awkward = []string{"plain", "", "a b", "it's", `"q"`, "$HOME `id` $(id)", `back\slash`, "a;b|c&d", "*", "~", "!x", "ümlaut"}

func awkwardEnv() *Env {
	e := &Env{dir: "/tmp/it's here", seen: "/etc/fencepost"}
	for i, v := range awkward {
		e.Variables = append(e.Variables, Variable{Name: "V" + string(rune('A'+i)), Value: v})
	}
	return e
}

func TestShellsReadWhatWasMeant(t *testing.T) {
	if _, err := exec.LookPath("env"); err != nil {
		t.Skip("there is no env on this machine to show what a shell has read")
	}
	e := awkwardEnv()
	for _, shell := range []string{"sh", "bash", "dash", "zsh"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		cmd := exec.Command(path, "-c", "eval \"$TEXT\"\nexec env")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TEXT=" + e.Shell()}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
		for _, v := range e.Variables {
			if !strings.Contains("\n"+string(out), "\n"+v.Name+"="+v.Value+"\n") {
				t.Errorf("%s: %s is not %q", shell, v.Name, v.Value)
			}
		}
	}
}

func TestDockerFile(t *testing.T) {
	e := awkwardEnv()
	lines := strings.Split(strings.TrimSuffix(e.Docker(), "\n"), "\n")
	if want := `# docker run --env-file THIS-FILE --volume '/tmp/it'\''s here:/etc/fencepost:ro' …`; lines[0] != want {
		t.Errorf("%s, want %s", lines[0], want)
	}
	for i, v := range e.Variables { // one a line, as it is
		if lines[i+1] != v.Name+"="+v.Value {
			t.Errorf("%s", lines[i+1])
		}
	}
}

func TestKubernetesSnippet(t *testing.T) {
	e := awkwardEnv()
	e.Variables = append(e.Variables, Variable{Name: "HTTPS_PROXY", Value: "http://c:token@h:1", Secret: true})
	text := e.Kubernetes()
	var spec struct {
		Env []struct {
			Name, Value string
			ValueFrom   struct {
				SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
			} `yaml:"valueFrom"`
		}
		VolumeMounts []struct {
			Name, MountPath string
			ReadOnly        bool `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
		Volumes []struct {
			Name      string
			ConfigMap struct{ Name string } `yaml:"configMap"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(spec.Env) != len(e.Variables) || len(spec.VolumeMounts) != 1 || len(spec.Volumes) != 1 || spec.Volumes[0].ConfigMap.Name != "fencepost-trust" {
		t.Fatalf("%+v", spec)
	}
	for i, v := range e.Variables {
		got := spec.Env[i]
		// What a kubelet makes of a value.
		value := strings.ReplaceAll(got.Value, "$$(", "$(")
		if got.Name != v.Name || !v.Secret && value != v.Value {
			t.Errorf("%s is %q, want %q", v.Name, value, v.Value)
		}
		if v.Secret && (got.Value != "" || got.ValueFrom.SecretKeyRef.Name != "fencepost-proxy" || got.ValueFrom.SecretKeyRef.Key != "url") {
			t.Errorf("%+v", got)
		}
	}
	if strings.Contains(text, "token@") || !strings.Contains(text, "kubectl create secret generic fencepost-proxy") || !strings.Contains(text, `--from-file='/tmp/it'\''s here'`) {
		t.Errorf("%s", text)
	}
}

// TestForAContainer: nothing of this machine's configuration goes along but its roots.
func TestForAContainer(t *testing.T) {
	ours, system, x := authority(t), authority(t), authority(t)
	base := bare(t, system)
	home := value(base, "HOME")
	own := write(t, filepath.Join(home, "x.pem"), 0o600, string(x.PEM()))
	write(t, filepath.Join(home, ".npmrc"), 0o600, "cafile="+own)
	write(t, filepath.Join(home, ".wgetrc"), 0o600, "password = hunter2\nca_certificate = "+own)
	e := prepare(t, Settings{CA: ours.PEM(), Base: base, Seen: "/etc/fencepost", Proxy: "http://proxy:3128"})
	if v := e.value("NPM_CONFIG_CAFILE"); v != "" {
		t.Errorf("NPM_CONFIG_CAFILE=%s", v)
	}
	if b, _ := os.ReadFile(filepath.Join(e.dir, "wgetrc")); string(b) != "ca_certificate = /etc/fencepost/bundle.pem\n" {
		t.Errorf("%s", b)
	}
	if e.value("SSL_CERT_FILE") != "/etc/fencepost/bundle.pem" || !strings.Contains(e.value("JAVA_TOOL_OPTIONS"), "trustStore=/etc/fencepost/truststore.p12") {
		t.Errorf("%s", e.Docker())
	}
	holds(t, filepath.Join(e.dir, BundleFile), ours, system)
	storeHolds(t, filepath.Join(e.dir, StoreFile), ours, system)
}

package clientenv

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fencepost/proxy/ca"
)

func TestEveryVariableOfTheMatrixIsSet(t *testing.T) {
	e := prepare(t, Settings{Base: bare(t, authority(t)), Proxy: "http://127.0.0.1:3128"})
	want := []string{
		"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy", "NODE_USE_ENV_PROXY",
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
		"NIX_SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "HTTPLIB2_CA_CERTS", "BUNDLE_SSL_CA_CERT",
		"NODE_EXTRA_CA_CERTS", "DENO_CERT", "WGETRC", "JAVA_TOOL_OPTIONS",
	}
	var got []string
	for _, v := range e.Variables {
		got = append(got, v.Name)
		if v.Why == "" || v.Value == "" {
			t.Errorf("%s has no value or no reason", v.Name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("variables:\n%v, want\n%v", got, want)
	}
	for _, v := range prepare(t, Settings{Base: bare(t, authority(t))}).Variables {
		if strings.Contains(strings.ToLower(v.Name), "proxy") || strings.Contains(v.Value, "proxy") {
			t.Errorf("without a proxy: %s=%s", v.Name, v.Value)
		}
	}
}

// TestWhatEachClientTrusts: what it trusted before, and the authority. Never less, and
// nobody else.
func TestWhatEachClientTrusts(t *testing.T) {
	ours, system, x, y := authority(t), authority(t), authority(t), authority(t)
	dir := t.TempDir()
	fx := write(t, filepath.Join(dir, "x.pem"), 0o600, "# our roots\n"+string(x.PEM()))
	fy := write(t, filepath.Join(dir, "y.pem"), 0o600, string(y.PEM()))
	fxdir := filepath.Dir(write(t, filepath.Join(dir, "folder", "x.pem"), 0o600, string(x.PEM())))
	both := write(t, filepath.Join(dir, "both.pem"), 0o600, string(system.PEM())+string(x.PEM()))
	type as = []*ca.Authority
	for _, r := range []struct {
		name string
		set  []string
		want map[string]as // beside ours, which is always first
	}{
		{"nothing", nil, map[string]as{"SSL_CERT_FILE": {system}, "REQUESTS_CA_BUNDLE": {system}, "GIT_SSL_CAINFO": {system}, "NODE_EXTRA_CA_CERTS": {}, "DENO_CERT": {}}},
		{"its own", []string{"GIT_SSL_CAINFO=" + fx}, map[string]as{"GIT_SSL_CAINFO": {x}, "SSL_CERT_FILE": {system}, "AWS_CA_BUNDLE": {system}}},
		{"curl's, which requests and pip fall back to", []string{"CURL_CA_BUNDLE=" + fx}, map[string]as{"CURL_CA_BUNDLE": {x}, "REQUESTS_CA_BUNDLE": {x}, "PIP_CERT": {x}, "AWS_CA_BUNDLE": {system}, "CARGO_HTTP_CAINFO": {system}}},
		{"requests', which pip and boto3 fall back to", []string{"CURL_CA_BUNDLE=" + fx, "REQUESTS_CA_BUNDLE=" + fy}, map[string]as{"CURL_CA_BUNDLE": {x}, "REQUESTS_CA_BUNDLE": {y}, "PIP_CERT": {y}, "AWS_CA_BUNDLE": {y}}},
		{"a folder", []string{"REQUESTS_CA_BUNDLE=" + fxdir}, map[string]as{"REQUESTS_CA_BUNDLE": {x}}},
		{"an empty variable", []string{"REQUESTS_CA_BUNDLE="}, map[string]as{"REQUESTS_CA_BUNDLE": {system}}},
		{"the last of two", []string{"PIP_CERT=" + fy, "PIP_CERT=" + fx}, map[string]as{"PIP_CERT": {x}}},
		{"additions", []string{"NODE_EXTRA_CA_CERTS=" + fx, "DENO_CERT=" + fy}, map[string]as{"NODE_EXTRA_CA_CERTS": {x}, "DENO_CERT": {y}, "SSL_CERT_FILE": {system}}},
		{"a file with the system's and more", []string{"AWS_CA_BUNDLE=" + both}, map[string]as{"AWS_CA_BUNDLE": {system, x}}},
		{"the system's, in two halves", []string{"SSL_CERT_FILE=" + fy, "SSL_CERT_DIR=" + fxdir}, map[string]as{"SSL_CERT_FILE": {y, x}, "REQUESTS_CA_BUNDLE": {y, x}}},
		{"npm's own", []string{"npm_config_cafile=" + fx}, map[string]as{"NPM_CONFIG_CAFILE": {x}, "npm_config_cafile": {x}, "NODE_EXTRA_CA_CERTS": {}}},
	} {
		t.Run(r.name, func(t *testing.T) {
			e := prepare(t, Settings{CA: ours.PEM(), Base: append(bare(t, system), r.set...)})
			for name, want := range r.want {
				holds(t, e.value(name), append(as{ours}, want...)...)
			}
			if len(e.Warnings) > 0 {
				t.Error(e.Warnings)
			}
		})
	}
}

// TestFilesThatCannotBeRead mean what they meant before: nobody is trusted.
func TestFilesThatCannotBeRead(t *testing.T) {
	ours, system := authority(t), authority(t)
	dir := t.TempDir()
	for what, file := range map[string]string{
		"no file":        filepath.Join(dir, "none.pem"),
		"no certificate": write(t, filepath.Join(dir, "text"), 0o600, "hello"),
		"a device":       "/dev/zero",
		"no DER":         write(t, filepath.Join(dir, "bad.pem"), 0o600, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
	} {
		e := prepare(t, Settings{CA: ours.PEM(), Base: append(bare(t, system), "REQUESTS_CA_BUNDLE="+file, "NODE_EXTRA_CA_CERTS="+file)})
		holds(t, e.value("REQUESTS_CA_BUNDLE"), ours)
		holds(t, e.value("NODE_EXTRA_CA_CERTS"), ours)
		holds(t, e.value("SSL_CERT_FILE"), ours, system)
		all := strings.Join(e.Warnings, "\n")
		if !strings.Contains(all, "REQUESTS_CA_BUNDLE of the environment names "+file) || !strings.Contains(all, "NODE_EXTRA_CA_CERTS") {
			t.Errorf("%s: warnings: %s", what, all)
		}
	}
}

func TestAMachineWithoutRoots(t *testing.T) {
	ours := authority(t)
	e := prepare(t, Settings{CA: ours.PEM(), Base: bare(t)})
	if len(e.Roots) != 0 || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "ca-certificates") {
		t.Errorf("%v %v", e.Roots, e.Warnings)
	}
	holds(t, e.value("SSL_CERT_FILE"), ours)
	holds(t, filepath.Join(filepath.Dir(e.value("WGETRC")), BundleFile), ours)
}

func TestSystemRootsAreFoundAsGoFindsThem(t *testing.T) {
	oldFiles, oldDirs := rootFiles, rootDirs
	t.Cleanup(func() { rootFiles, rootDirs = oldFiles, oldDirs })
	a, b, c := authority(t), authority(t), authority(t)
	dir := t.TempDir()
	second := write(t, filepath.Join(dir, "second.pem"), 0o600, string(a.PEM()))
	third := write(t, filepath.Join(dir, "third.pem"), 0o600, string(b.PEM()))
	folder := filepath.Join(dir, "folder")
	write(t, filepath.Join(folder, "c.pem"), 0o600, string(c.PEM()))
	write(t, filepath.Join(folder, "a.pem"), 0o600, string(a.PEM())) // a second time
	leaf, _ := b.Leaf(t.Context(), "this-machine.test")
	leaves := &certs{}
	leaves.add(leaf.Certificate[0])
	write(t, filepath.Join(folder, "snakeoil.pem"), 0o600, string(leaves.pem()))
	os.Symlink("c.pem", filepath.Join(folder, "1234abcd.0"))
	os.Mkdir(filepath.Join(folder, "java"), 0o700)
	rootFiles, rootDirs = []string{filepath.Join(dir, "none.pem"), second, third}, []string{filepath.Join(dir, "no-folder"), folder}

	e := prepare(t, Settings{CA: b.PEM()})
	holds(t, e.value("SSL_CERT_FILE"), b, a, c)
	if strings.Join(e.Roots, " ") != second+" "+folder {
		t.Errorf("found in %v", e.Roots)
	}
	if e = prepare(t, Settings{CA: a.PEM(), Base: []string{"SSL_CERT_FILE=" + third}}); e != nil {
		holds(t, e.value("SSL_CERT_FILE"), a, b, c)
	}
}

func TestTheTokenIsInTheProxyVariablesOnly(t *testing.T) {
	const token = "s3cr3t-token"
	base := bare(t, authority(t))
	write(t, filepath.Join(value(base, "HOME"), ".wgetrc"), 0o600, "timeout = 3\n")
	e := prepare(t, Settings{Base: base, Proxy: "http://caller:" + token + "@127.0.0.1:3128"})
	for _, v := range e.Variables {
		proxy := slices.Contains([]string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"}, v.Name)
		if strings.Contains(v.Value, token) != proxy || v.Secret != proxy || strings.Contains(v.Why, token) {
			t.Errorf("%s=%s, secret %v", v.Name, v.Value, v.Secret)
		}
		if v.Name == "JAVA_TOOL_OPTIONS" && !strings.Contains(v.Why, "Authenticator") {
			t.Errorf("nobody is told that Java has no token: %s", v.Why)
		}
	}
	entries, _ := os.ReadDir(e.dir)
	for _, f := range entries {
		if b, err := os.ReadFile(filepath.Join(e.dir, f.Name())); err != nil || strings.Contains(string(b), token) {
			t.Errorf("%s holds the token (%v)", f.Name(), err)
		}
	}
	if strings.Contains(e.Kubernetes(), token) {
		t.Error("the token is in the pod's spec")
	}
}

// TestKeysStayBehind: a bundle of the user's may have a key beside the certificates.
func TestKeysStayBehind(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "both.pem"), 0o600, "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\n"+string(authority(t).PEM()))
	e := prepare(t, Settings{Base: append(bare(t, authority(t)), "REQUESTS_CA_BUNDLE="+file)})
	if b, _ := os.ReadFile(e.value("REQUESTS_CA_BUNDLE")); strings.Contains(string(b), "KEY") {
		t.Errorf("%s", b)
	}
}

func TestFilesAndModes(t *testing.T) {
	base := bare(t, authority(t))
	for seen, modes := range map[string]map[string]fs.FileMode{
		"":               {".": 0o700 | fs.ModeDir, CAFile: 0o644, BundleFile: 0o644, StoreFile: 0o644, "wgetrc": 0o600, markName: 0o644},
		"/etc/fencepost": {".": 0o755 | fs.ModeDir, CAFile: 0o644, BundleFile: 0o644, StoreFile: 0o644, "wgetrc": 0o644, markName: 0o644},
	} {
		e := prepare(t, Settings{Base: base, Seen: seen})
		entries, _ := os.ReadDir(e.dir)
		if len(entries) != len(modes)-1 {
			t.Errorf("files: %v", entries)
		}
		for name, mode := range modes {
			if fi, err := os.Stat(filepath.Join(e.dir, name)); err != nil || fi.Mode() != mode {
				t.Errorf("seen in %q: %s has mode %v, want %v (%v)", seen, name, fi.Mode(), mode, err)
			}
		}
		for _, v := range e.Variables {
			if seen != "" && strings.Contains(v.Value, e.dir) {
				t.Errorf("%s=%s is not what the client sees", v.Name, v.Value)
			}
		}
	}
}

// TestPreparingTwiceChangesNothing: also with the variables of the first time in the
// environment, as in a shell that has evaluated `ca env`. A new authority takes the
// place of the one before.
func TestPreparingTwiceChangesNothing(t *testing.T) {
	old, ours, system, x := authority(t), authority(t), authority(t), authority(t)
	dir := filepath.Join(t.TempDir(), "trust")
	base := append(bare(t, system), "NO_PROXY=a.test, b.test", "JAVA_TOOL_OPTIONS=-Dmine=1", "PIP_CERT="+write(t, filepath.Join(t.TempDir(), "x.pem"), 0o600, string(x.PEM())))
	write(t, filepath.Join(value(base, "HOME"), ".wgetrc"), 0o600, "timeout = 3\n")
	do := func(a *ca.Authority, base []string) *Env {
		e, err := Prepare(dir, Settings{CA: a.PEM(), Base: base, Proxy: "http://127.0.0.1:3128"})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := do(old, base)
	if again := do(old, base); again.Shell() != first.Shell() {
		t.Errorf("not the same twice:\n%s\n%s", first.Shell(), again.Shell())
	}
	second := do(ours, first.Environ(base))
	if second.Shell() != first.Shell() {
		t.Errorf("it grows:\n%s\n%s", first.Shell(), second.Shell())
	}
	if len(second.Warnings) > 0 {
		t.Error(second.Warnings)
	}
	holds(t, second.value("SSL_CERT_FILE"), ours, system)
	holds(t, second.value("PIP_CERT"), ours, x)
	holds(t, second.value("NODE_EXTRA_CA_CERTS"), ours)
	if b, _ := os.ReadFile(second.value("WGETRC")); strings.Count(string(b), "timeout") != 1 || strings.Count(string(b), "ca_certificate") != 1 {
		t.Errorf("wgetrc: %s", b)
	}
	if c, err := readStore(filepath.Join(dir, StoreFile), ""); err != nil || len(c.ders) != 2 {
		t.Errorf("the trust store holds %d certificates (%v)", len(c.ders), err)
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".new") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func TestEnvironReplacesAndKeeps(t *testing.T) {
	e := &Env{Variables: []Variable{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}
	got := e.Environ([]string{"A=0", "AA=x", "C=3", "A=00", "B"})
	if want := []string{"AA=x", "C=3", "A=1", "B=2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPrepareRefuses(t *testing.T) {
	a := authority(t)
	open := filepath.Join(t.TempDir(), "open")
	os.Mkdir(open, 0o700)
	os.Chmod(open, 0o777)
	file := write(t, filepath.Join(t.TempDir(), "file"), 0o600, "")
	theirs := filepath.Dir(write(t, filepath.Join(t.TempDir(), "theirs", "bundle.pem"), 0o600, "mine"))
	for _, r := range []struct {
		dir string
		s   Settings
		say string
	}{
		{theirs, Settings{CA: a.PEM()}, "other files"},
		{"d", Settings{}, "0 certificates"},
		{"d", Settings{CA: append(a.PEM(), authority(t).PEM()...)}, "2 certificates"},
		{"d", Settings{CA: a.PEM(), Seen: "relative"}, "cannot be named"},
		{"d\nX=1", Settings{CA: a.PEM()}, "cannot be named"},
		{`a "b" 'c'`, Settings{CA: a.PEM()}, "both kinds of quotes"},
		{open, Settings{CA: a.PEM()}, "chmod go-w " + open},
		{file, Settings{CA: a.PEM()}, file},
		{"d", Settings{CA: a.PEM(), Proxy: "127.0.0.1:3128"}, "not a URL"},
		{"d", Settings{CA: a.PEM(), Proxy: "http://127.0.0.1"}, "no port"},
		{"d", Settings{CA: a.PEM(), Proxy: "socks5://127.0.0.1:1080"}, "http:// or https://"},
		{"d", Settings{CA: a.PEM(), Proxy: "http://127.0.0.1:3128/path"}, "nothing after"},
		{"d", Settings{CA: a.PEM(), Proxy: "http://c:s3cr3t@127.0.0.1:31 28"}, "not a URL"},
		{"d", Settings{CA: a.PEM(), Proxy: "http://c:s3cr3t@:3128"}, "not a URL"},
	} {
		dir := r.dir
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(t.TempDir(), dir)
		}
		_, err := Prepare(dir, r.s)
		if err == nil || !strings.Contains(err.Error(), r.say) || strings.Contains(fmt.Sprint(err), "s3cr3t") {
			t.Errorf("%+v: %v, want %q", r.s, err, r.say)
		}
		if _, serr := os.Stat(dir); dir != open && dir != file && dir != theirs && serr == nil {
			t.Errorf("%+v: something was written", r.s)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(theirs, "bundle.pem")); string(b) != "mine" {
		t.Errorf("somebody's bundle is now %q", b)
	}
}

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fencepost/proxy"
	"fencepost/proxy/ca"
)

var _ proxy.Authority = (*ca.Authority)(nil)

// caProcess runs `fencepost ca` as a person does, in a folder of their own.
type caProcess struct {
	t    *testing.T
	work string
	env  []string
}

func (p *caProcess) start(env []string, args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	cmd := exec.Command(binary(p.t), append([]string{"ca"}, args...)...)
	cmd.Dir = p.work
	cmd.Env = append(append(os.Environ(), p.env...), env...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	_ = cmd.Run()
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

// run checks the exit code and that the words are printed, and that no key ever is.
func (p *caProcess) run(code int, words []string, args ...string) string {
	p.t.Helper()
	stdout, stderr, got := p.start(nil, args...)
	all := stdout + stderr
	if got != code {
		p.t.Errorf("ca %v: exit %d, want %d\n%s", args, got, code, all)
	}
	for _, w := range words {
		if !strings.Contains(all, w) {
			p.t.Errorf("ca %v does not say %q:\n%s", args, w, all)
		}
	}
	keys, _ := filepath.Glob(filepath.Join(p.work, "*", ca.KeyFile))
	for _, k := range keys {
		text, _ := os.ReadFile(k)
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			if strings.Contains(all, line) {
				p.t.Errorf("ca %v prints the key %s", args, k)
			}
		}
	}
	return stdout
}

func TestAnAuthorityFromTheShell(t *testing.T) {
	p := &caProcess{t: t, work: t.TempDir()}
	p.run(1, []string{"no such file", "fencepost ca init --dir ca"}, "show")
	p.run(1, []string{"fencepost ca init --dir other"}, "env", "--dir", "other")
	p.run(0, []string{"signs for    every host", "365 days left", "ca/ca-key.pem secret", "certificate  ca/ca.pem"}, "init")
	before, _ := os.ReadFile(filepath.Join(p.work, "ca", ca.KeyFile))
	p.run(1, []string{"already (ca/ca.pem)", "move ca.pem and ca-key.pem away"}, "init")
	if after, _ := os.ReadFile(filepath.Join(p.work, "ca", ca.KeyFile)); !bytes.Equal(before, after) {
		t.Error("the key was changed")
	}
	a, err := ca.Open(filepath.Join(p.work, "ca"))
	if err != nil {
		t.Fatal(err)
	}
	p.run(0, []string{a.Fingerprint(), a.Info().Subject, a.Info().Serial, "365 days left", "key          ca/ca-key.pem"}, "show")
	var doc struct {
		Subject, Serial, SHA256, Certificate, Key, Problem string
		NotAfter                                           string   `json:"not_after"`
		DaysLeft                                           int      `json:"days_left"`
		NearExpiry                                         bool     `json:"near_expiry"`
		PermitDomains                                      []string `json:"permit_domains"`
		AddressesExcluded                                  bool     `json:"addresses_excluded"`
	}
	show := func(code int, args ...string) {
		t.Helper()
		doc.Problem = ""
		if err := json.Unmarshal([]byte(p.run(code, nil, append([]string{"show", "--json"}, args...)...)), &doc); err != nil {
			t.Fatal(err)
		}
	}
	if show(0); doc.SHA256 != a.Fingerprint() || doc.DaysLeft != 365 || doc.NearExpiry || doc.Problem != "" || doc.PermitDomains == nil || doc.NotAfter != a.NotAfter().UTC().Format(time.RFC3339) {
		t.Errorf("%+v", doc)
	}

	p.run(0, []string{"names at or below example.com, api.test, no IP address", "Java does not honour"}, "init", "--dir", "limited", "--permit-domain", "Example.com", "--permit-domain", "api.test", "--lifetime", "48h")
	if show(0, "--dir", "limited"); strings.Join(doc.PermitDomains, " ") != "example.com api.test" || !doc.AddressesExcluded || doc.DaysLeft != 2 {
		t.Errorf("%+v", doc)
	}
	p.run(1, []string{"not a host name"}, "init", "--dir", "bad", "--permit-domain", "exa mple")
	p.run(1, []string{"lifetime"}, "init", "--dir", "bad", "--lifetime", "1m")
	if _, err := os.Stat(filepath.Join(p.work, "bad")); err == nil {
		t.Error("a refused init leaves a folder")
	}

	os.Chmod(filepath.Join(p.work, "ca", ca.KeyFile), 0o644)
	p.run(1, []string{"problem", "chmod 600", a.Fingerprint(), "cannot be used"}, "show")
	if show(1); !strings.Contains(doc.Problem, "chmod 600") || doc.SHA256 != a.Fingerprint() {
		t.Errorf("%+v", doc)
	}

	p.run(2, []string{"no subcommand \"frob\""}, "frob")
	p.run(2, []string{"init", "show", "env"})
	p.run(0, []string{"init", "show", "env"}, "help")
	p.run(0, []string{"permit-domain"}, "init", "-h")
	p.run(2, []string{"not both"}, "env", "--docker", "--kubernetes")
	p.run(2, []string{"unexpected argument"}, "show", "ca")
	p.run(2, []string{"flag provided but not defined"}, "show", "--permit-domain", "x")
}

func TestVariablesFromTheShell(t *testing.T) {
	roots := t.TempDir()
	p := &caProcess{t: t, work: t.TempDir(), env: []string{
		"HOME=" + t.TempDir(), "SSL_CERT_FILE=" + filepath.Join(roots, "cert.pem"), "SSL_CERT_DIR=" + t.TempDir(), "EGRESS_TOKEN=s3cr3t-token",
		"CURL_CA_BUNDLE=", "NO_PROXY=mine.test", "no_proxy=",
	}}
	issue(t, roots, "127.0.0.1")
	p.run(0, nil, "init")
	const proxy = "http://caller:${EGRESS_TOKEN}@127.0.0.1:3128"
	shell := p.run(0, []string{"export HTTPS_PROXY='http://caller:s3cr3t-token@127.0.0.1:3128'", "export NO_PROXY='localhost,127.0.0.1,::1,[::1],mine.test'",
		"export SSL_CERT_FILE='" + filepath.Join(p.work, "ca", "trust", "bundle.pem") + "'"}, "env", "--proxy", proxy)
	if again := p.run(0, nil, "env", "--proxy", proxy); again != shell {
		t.Errorf("not the same twice:\n%s\n%s", shell, again)
	}
	if strings.Contains(p.run(0, []string{"no --proxy is given", "SSL_CERT_FILE"}, "env"), "PROXY") {
		t.Error("proxy variables without a proxy")
	}
	docker := p.run(0, []string{"--volume '" + filepath.Join(p.work, "ca", "trust-mount") + ":/etc/fencepost:ro'", "a container that asks for it asks itself",
		"SSL_CERT_FILE=/etc/fencepost/bundle.pem"}, "env", "--docker", "--proxy", proxy)
	if !strings.Contains(docker, "\nHTTPS_PROXY=http://caller:s3cr3t-token@127.0.0.1:3128\n") || strings.Contains(docker, "mine.test") {
		t.Errorf("%s", docker)
	}
	pod := p.run(0, []string{"kubectl create secret generic fencepost-proxy", "mountPath: \"/etc/fencepost\""}, "env", "--kubernetes", "--proxy", "http://caller:${EGRESS_TOKEN}@proxy.svc:3128")
	if strings.Contains(pod, "s3cr3t") {
		t.Errorf("the token is in the pod's spec:\n%s", pod)
	}
	p.run(0, []string{filepath.Join(p.work, "mine", "bundle.pem")}, "env", "--files", "mine")
	p.run(1, []string{"other files"}, "env", "--files", "ca")

	if out := p.run(1, []string{"visible to every process"}, "env", "--proxy", "http://caller:geheim@127.0.0.1:3128"); strings.Contains(out, "geheim") {
		t.Error("the token is repeated")
	}
	p.run(1, []string{"environment variable NOT_THERE is not set"}, "env", "--proxy", "http://caller:${NOT_THERE}@127.0.0.1:3128")
	p.run(1, []string{"no port"}, "env", "--proxy", "http://127.0.0.1")

	// A machine that only has the certificate.
	copied := filepath.Join(p.work, "copied")
	os.Mkdir(copied, 0o700)
	cert, _ := os.ReadFile(filepath.Join(p.work, "ca", ca.CertFile))
	os.WriteFile(filepath.Join(copied, ca.CertFile), cert, 0o644)
	p.run(0, []string{"SSL_CERT_FILE"}, "env", "--dir", "copied")
	ending(t, filepath.Join(p.work, "expired"), -time.Hour)
	p.run(1, []string{"expired on", "fencepost ca init"}, "env", "--dir", "expired")
	p.run(1, []string{"no time left", "problem", "expired on"}, "show", "--dir", "expired")
	ending(t, filepath.Join(p.work, "soon"), 20*24*time.Hour)
	p.run(0, []string{"SSL_CERT_FILE", "warning: the authority expires in 20 days"}, "env", "--dir", "soon")
	p.run(0, []string{"20 days left", "warning: the authority expires in 20 days"}, "show", "--dir", "soon")
	p.run(0, []string{`"near_expiry": true`}, "show", "--dir", "soon", "--json")
}

// ending makes an authority of a year that has so much left.
func ending(t *testing.T, dir string, left time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(left)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.AddDate(-1, 0, 0), NotAfter: end, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{ca.CertFile: {Type: "CERTIFICATE", Bytes: der}, ca.KeyFile: {Type: "PRIVATE KEY", Bytes: kder}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAShellThatEvaluatesTheVariables: a client started from it trusts a host that is
// intercepted.
func TestAShellThatEvaluatesTheVariables(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		unavailable(t, "curl", err)
	}
	p := &caProcess{t: t, work: filepath.Join(t.TempDir(), "it's a folder")}
	os.Mkdir(p.work, 0o700)
	p.run(0, nil, "init")
	a, err := ca.Open(filepath.Join(p.work, "ca"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return a.Leaf(h.Context(), h.ServerName) }})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })}
	defer s.Close()
	go s.Serve(l)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cmd := exec.Command("sh", "-c", `eval "$("$FENCEPOST" ca env)" && curl -sS "$URL"`)
	cmd.Dir = p.work
	cmd.Env = append(os.Environ(), "FENCEPOST="+binary(t), "URL=https://localhost:"+port, "NO_PROXY=*", "no_proxy=*")
	out, err := cmd.Output()
	if err != nil || string(out) != "hello" {
		t.Errorf("%v %s", err, out)
	}
}

// TestInitsThatAreKilled at each point, and then repeated.
func TestInitsThatAreKilled(t *testing.T) {
	for _, at := range []string{"ca.key.before", "ca.key.after", "ca.cert.before"} {
		t.Run(at, func(t *testing.T) {
			p := &caProcess{t: t, work: t.TempDir()}
			if out, problems, code := p.start([]string{"FENCEPOST_FAILPOINT=" + at + "=kill"}, "init"); code != -1 {
				t.Fatalf("not killed: exit %d\n%s%s", code, out, problems)
			}
			if _, err := ca.Open(filepath.Join(p.work, "ca")); err == nil {
				t.Error("there is an authority already")
			}
			p.run(0, []string{"365 days left"}, "init")
			p.run(0, []string{"365 days left"}, "show")
			if entries, _ := os.ReadDir(filepath.Join(p.work, "ca")); len(entries) != 2 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func TestInitsOfManyProcesses(t *testing.T) {
	p := &caProcess{t: t, work: t.TempDir()}
	binary(t)
	codes := make([]int, 6)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() {
			var problems string
			_, problems, codes[i] = p.start(nil, "init")
			if codes[i] != 0 && !strings.Contains(problems, "already") {
				t.Errorf("exit %d: %s", codes[i], problems)
			}
		})
	}
	wg.Wait()
	won := 0
	for _, c := range codes {
		if c == 0 {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d of %d made an authority", won, len(codes))
	}
	p.run(0, nil, "show")
}

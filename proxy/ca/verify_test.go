package ca

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The judges in this file were not written here.

// program finds a command, or ends the test for want of it.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("FENCEPOST_TEST_CLIENTS") == "require" {
		t.Fatalf("%s is not installed, and FENCEPOST_TEST_CLIENTS=require asks for it", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

func output(t *testing.T, path string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestOpenSSLAcceptsLeaves(t *testing.T) {
	openssl := program(t, "openssl")
	for _, r := range []struct {
		o        Options
		name, as string
	}{
		{Options{}, "api.example.com", "-verify_hostname"},
		{Options{}, strings.Repeat("n", 63) + ".example", "-verify_hostname"},
		{Options{}, "192.0.2.7", "-verify_ip"},
		{Options{}, "2001:db8::7", "-verify_ip"},
		{Options{PermitDomains: []string{"example.com"}}, "api.example.com", "-verify_hostname"},
		{Options{PermitDomains: []string{"example.com"}}, "example.com", "-verify_hostname"},
	} {
		a, err := Temporary(r.o)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, "ca.pem"), 0o600, a.PEM())
		write(t, filepath.Join(dir, "leaf.pem"), 0o600, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafOf(t, a, r.name).Certificate[0]}))
		out, err := output(t, openssl, "verify", "-x509_strict", "-no-CApath", "-no-CAstore", "-CAfile", filepath.Join(dir, "ca.pem"), "-purpose", "sslserver", r.as, r.name, filepath.Join(dir, "leaf.pem"))
		if err != nil {
			t.Errorf("%s of %+v: %v\n%s", r.name, r.o, err, out)
		}
		if out, err := output(t, openssl, "verify", "-no-CApath", "-no-CAstore", "-CAfile", filepath.Join(dir, "ca.pem"), r.as, "192.0.2.99", filepath.Join(dir, "leaf.pem")); err == nil {
			t.Errorf("%s is accepted for another host:\n%s", r.name, out)
		}
	}
}

func TestCurlAcceptsLeaves(t *testing.T) {
	curl := program(t, "curl")
	a, err := Temporary(Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), 0o600, a.PEM())
	port := serve(t, a)
	for _, host := range []string{"api.example.com", "127.0.0.1", strings.Repeat("n", 63) + ".example"} {
		url := "https://" + host + ":" + port + "/"
		out, err := output(t, curl, "-sS", "--http2", "--cacert", filepath.Join(dir, "ca.pem"), "--connect-to", "::127.0.0.1:"+port, url)
		if err != nil || out != "hello "+host+":"+port {
			t.Errorf("%s: %v\n%s", host, err, out)
		}
		other, _ := Temporary(Options{})
		write(t, filepath.Join(dir, "other.pem"), 0o600, other.PEM())
		if out, err := output(t, curl, "-sS", "--cacert", filepath.Join(dir, "other.pem"), "--connect-to", "::127.0.0.1:"+port, url); err == nil {
			t.Errorf("%s: accepted by who trusts another authority:\n%s", host, out)
		}
	}
}

// serve answers HTTPS on the loopback with leaves of a.
func serve(t *testing.T, a *Authority) (port string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := h.ServerName
			if name == "" {
				name = "127.0.0.1"
			}
			return a.Leaf(h.Context(), name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.Host) }),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	t.Cleanup(func() { s.Close() })
	go s.Serve(l)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

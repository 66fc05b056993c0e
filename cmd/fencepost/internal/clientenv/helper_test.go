package clientenv

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"fencepost/proxy/ca"
)

func authority(t *testing.T) *ca.Authority {
	t.Helper()
	a, err := ca.Temporary(ca.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func write(t *testing.T, name string, mode fs.FileMode, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

// bare is an environment in which the system trusts the given authorities only, and
// no tool is configured.
func bare(t *testing.T, roots ...*ca.Authority) []string {
	t.Helper()
	dir := t.TempDir()
	var text bytes.Buffer
	for _, a := range roots {
		text.Write(a.PEM())
	}
	write(t, filepath.Join(dir, "none", ".keep"), 0o600, "")
	write(t, filepath.Join(dir, "home", ".keep"), 0o600, "")
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "JAVA_HOME=" + filepath.Join(dir, "none"),
		"NPM_CONFIG_GLOBALCONFIG=" + filepath.Join(dir, "none", "npmrc"),
		"SSL_CERT_FILE=" + write(t, filepath.Join(dir, "roots.pem"), 0o600, text.String()), "SSL_CERT_DIR=" + filepath.Join(dir, "none"),
	}
}

func prepare(t *testing.T, s Settings) *Env {
	t.Helper()
	if s.CA == nil {
		s.CA = authority(t).PEM()
	}
	if s.WorkDir == "" {
		s.WorkDir = t.TempDir()
	}
	e, err := Prepare(filepath.Join(t.TempDir(), "trust"), s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// value returns a variable of e.
func (e *Env) value(name string) string {
	for _, v := range e.Variables {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// holds checks which authorities a file of certificates holds, and no other.
func holds(t *testing.T, file string, want ...*ca.Authority) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	var got []string
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			break
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			t.Error(err)
			return
		}
		got = append(got, c.Subject.String())
	}
	same := len(got) == len(want)
	for i := range want {
		same = same && got[i] == want[i].Info().Subject
	}
	if !same {
		t.Errorf("%s holds %q; want %d others", file, got, len(want))
	}
}

// server is an HTTPS server that counts the requests that reach it, which is what a
// client's trust shows in, whatever it prints.
type server struct {
	url  string
	hits atomic.Int64
}

func serve(t *testing.T, a *ca.Authority) *server {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return a.Leaf(h.Context(), "localhost")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := &server{url: "https://localhost:" + port}
	hs := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		switch {
		case strings.HasSuffix(r.URL.Path, "/info/refs"): // git's dumb protocol
			io.WriteString(w, strings.Repeat("1", 40)+"\trefs/heads/main\n")
		case r.URL.Path == "/config.json": // a cargo index
			io.WriteString(w, `{"dl":"`+s.url+`/dl","api":"`+s.url+`"}`)
		default:
			io.WriteString(w, `{}`)
		}
	})}
	t.Cleanup(func() { hs.Close() })
	go hs.Serve(l)
	return s
}

package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes the certificate of net/http's test servers (example.com and
// 127.0.0.1) to files.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	s.Close()
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: s.Certificate().Raw}, keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return certFile, keyFile, roots
}

// secure serves r's proxy over TLS and returns the address.
func secure(t *testing.T, r *rig) (addr string, s *Server, roots *x509.CertPool) {
	t.Helper()
	certFile, keyFile, roots := certificate(t)
	s, err := NewServer(r.proxy, ServerOptions{HeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10, CertFile: certFile, KeyFile: keyFile, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String(), s, roots
}

func over(protocol string, roots *x509.CertPool) *http.Client {
	var p http.Protocols
	p.SetHTTP1(protocol == "HTTP/1.1")
	p.SetHTTP2(protocol == "HTTP/2.0")
	return &http.Client{Transport: &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}}}
}

func TestClientsSpeakBothVersionsOverTLS(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, func(c *Config) { c.Forwarded = ForwardedSet })
	addr, _, roots := secure(t, r)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		client := over(protocol, roots)
		key := strings.ReplaceAll(protocol, "/", "-")
		for i := range 2 {
			req, _ := http.NewRequest("POST", "https://"+addr+"/v1/charges", struct{ io.Reader }{strings.NewReader("the body")})
			req.Header.Set("Idempotency-Key", key)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.Proto != protocol || resp.StatusCode != 201 || string(body) != fmt.Sprintf(`{"key":%q,"effect":1}`, key) {
				t.Errorf("%s: %s %d %q %v", protocol, resp.Proto, resp.StatusCode, body, err)
			}
			if replayed := resp.Header.Get("Idempotent-Replayed") == "true"; replayed != (i == 1) {
				t.Errorf("%s: request %d: replayed %v", protocol, i, replayed)
			}
		}
		if got := p.headers[key].Get("X-Forwarded-Proto"); got != "https" {
			t.Errorf("%s: the upstream hears of %q", protocol, got)
		}
		p.counted(key, 1)
	}
}

// TestFramingIsWatchedOverTLSToo: the inspection stands above TLS.
func TestFramingIsWatchedOverTLSToo(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	addr, _, roots := secure(t, r)
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
	line, _ := bufio.NewReader(c).ReadString('\n')
	if !strings.HasPrefix(line, "HTTP/1.1 400") {
		t.Errorf("%q", line)
	}
	p.counted("k", 0)
}

func TestAStopDrainsWhatCameOverTLS(t *testing.T) {
	release := make(chan struct{})
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) { <-release; w.WriteHeader(204) })
	r := start(t, p.URL, nil, nil)
	addr, s, roots := secure(t, r)
	answers := make(chan error, 2)
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		go func() {
			req, _ := http.NewRequest("POST", "https://"+addr+"/", struct{ io.Reader }{strings.NewReader("x")})
			req.Header.Set("Idempotency-Key", strings.ReplaceAll(protocol, "/", "-"))
			resp, err := over(protocol, roots).Do(req)
			if err == nil && resp.StatusCode != 204 {
				err = fmt.Errorf("%s: %d", protocol, resp.StatusCode)
			}
			answers <- err
		}()
	}
	p.await("HTTP-1.1")
	p.await("HTTP-2.0")
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(context.Background()) }()
	// No new connection is taken while the old ones finish.
	for {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		c.Close()
	}
	close(release)
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestAHandshakeThatStallsHoldsNobody: neither other clients nor the stop.
func TestAHandshakeThatStallsHoldsNobody(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	addr, _, roots := secure(t, r)
	for range 5 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	resp, err := over("HTTP/2.0", roots).Get("https://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// TestARequestForTheServerItselfHasNoRoute: OPTIONS * reaches the handler like any
// other request, so that the framing is followed through it.
func TestARequestForTheServerItselfHasNoRoute(t *testing.T) {
	p := newProvider(t, nil)
	r := start(t, p.URL, nil, nil)
	c := r.dial("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx")
	c.SetDeadline(time.Now().Add(10 * time.Second))
	answers := bufio.NewReader(c)
	for _, want := range []int{400, 201} {
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
	p.counted("k", 1)
}

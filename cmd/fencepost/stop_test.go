package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAStormOfReloadsDoesNotDrownAStop: signals that nobody reads are dropped by
// the runtime, and SIGTERM must not be among them.
func TestAStormOfReloadsDoesNotDrownAStop(t *testing.T) {
	up := newProvider(t)
	var routes strings.Builder
	for i := range 300 {
		fmt.Fprintf(&routes, "  - {name: r%d, match: {path: /p%d}, upstream: '%s'}\n", i, i, up.URL)
	}
	file := filepath.Join(t.TempDir(), "many.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: '127.0.0.1:0'}\nledger: {url: 'sqlite://%s'}\nroutes:\n%s", filepath.Join(t.TempDir(), "l.db"), routes.String())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, nil, "serve", "--config", file)
	for range 50 {
		p.signal(syscall.SIGHUP)
		time.Sleep(time.Millisecond)
	}
	p.signal(syscall.SIGTERM)
	for range 50 {
		p.signal(syscall.SIGHUP)
		time.Sleep(time.Millisecond)
	}
	if code := p.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestAStopIsNotHeldByCallersThatDoNotRead, nor by those that do not finish
// sending: neither is an effect.
func TestAStopIsNotHeldByStubbornCallers(t *testing.T) {
	up := newProvider(t)
	file := configFile(t, up.URL, "sqlite://"+filepath.Join(t.TempDir(), "l.db"), "drain: {timeout: 1s}\n")
	p := launch(t, nil, "serve", "--config", file)
	for _, text := range []string{
		"POST /v1 HTTP/1.1\r\nHost: x\r\nIdempotency-Key: stalled\r\nContent-Length: 10\r\n\r\nx",
		"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nx",
		"GET / HT",
		"",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, text)
	}
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	p.signal(syscall.SIGTERM)
	p.ended()
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("it took %v to stop", d)
	}
	if _, n := up.counts("stalled"); n != 0 {
		t.Error("half a request was sent")
	}
}

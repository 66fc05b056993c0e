package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fencepost/proxy/ca"
)

// TestTenThousandIdleTunnels: they cost little, the next one is told that there is
// no room, and everything else goes on.
func TestTenThousandIdleTunnels(t *testing.T) {
	const wanted = 10_000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// A tunnel takes two files of the proxy's, and two of this process's. The proxy
	// keeps a thousand for the rest.
	most := min(wanted, (int(limit.Cur)-1000)/2)
	if most < 500 {
		t.Skipf("this process may open %d files only", limit.Cur)
	}
	if most < wanted {
		t.Logf("this process may open %d files: %d tunnels it is", limit.Cur, most)
	}
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	dir := t.TempDir()
	if _, err := ca.Init(filepath.Join(dir, "ca"), ca.Options{}); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "c.yaml")
	port := freePort(t)
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nledger: {url: 'sqlite://%s/l.db'}\n"+
		"egress: {listen: '127.0.0.1:%d', allow: [127.0.0.1], allow_cidrs: [127.0.0.0/8], any_port: true, max_tunnels: %d, ca: {dir: '%s/ca'}}\nroutes: [{name: a, match: {host: a.example}}]\n", dir, port, most, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, nil, "serve", "--config", config)
	before := p.heap()
	connect := func() (net.Conn, int, error) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, 0, err
		}
		c.SetDeadline(time.Now().Add(60 * time.Second))
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", far.Addr())
		resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"})
		if err != nil {
			c.Close()
			return nil, 0, err
		}
		return c, resp.StatusCode, nil
	}
	var conns sync.Map
	var opening sync.WaitGroup
	next := make(chan int)
	for range 16 {
		opening.Go(func() {
			for i := range next {
				c, status, err := connect()
				if err != nil || status != 200 {
					t.Errorf("tunnel %d: %d %v", i, status, err)
					continue
				}
				conns.Store(i, c)
			}
		})
	}
	for i := range most {
		next <- i
	}
	close(next)
	opening.Wait()
	if t.Failed() {
		return
	}
	defer conns.Range(func(_, c any) bool { c.(net.Conn).Close(); return true })
	if c, status, err := connect(); err != nil || status != 503 {
		t.Errorf("one too many: %d %v", status, err)
	} else {
		c.Close()
	}
	if r := send("GET", p.url+"/_fencepost/v1/operations/k", "", ""); r.status != 404 {
		t.Errorf("the API: %d %v", r.status, r.err)
	}
	if grown := p.heap() - before; grown > 400<<20 {
		t.Errorf("%d tunnels take %d MiB of heap", most, grown>>20)
	} else {
		t.Logf("%d tunnels take %d KiB of heap each", most, grown>>10/int64(most))
	}
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != 0 {
		t.Errorf("it stops with %d", code)
	}
}

// TestOversizedHeadersAreRefused: before a tunnel, and in it.
func TestOversizedHeadersAreRefused(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not on this machine")
	}
	w := newWorld(t)
	config := w.config(governedRoute, "")
	large := filepath.Join(w.dir, "header")
	if err := os.WriteFile(large, []byte("X-Large: "+strings.Repeat("x", 200<<10)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{
		"curl -sS -o /dev/null -w '%{http_code}' --proxy-header @" + large + " https://api.example.test/",
		"curl -sS -o /dev/null -w '%{http_code}' --http1.1 -X POST -H 'Idempotency-Key: k' -H @" + large + " https://api.example.test/",
		"curl -sS -o /dev/null -w '%{http_code}' --http2 -X POST -H 'Idempotency-Key: k' -H @" + large + " https://api.example.test/",
	} {
		r := runIn(t, nil, "--config", config, "--", "sh", "-c", c)
		if code, _ := strconv.Atoi(r.stdout); code >= 200 && code < 400 {
			t.Errorf("%s: %s", c, r.stdout)
		}
	}
	if n := w.effect("api.example.test", "k"); n != 0 {
		t.Errorf("%d effects", n)
	}
}

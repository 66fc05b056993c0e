package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// heap is what the process has taken from the system for its heap, in bytes, at
// most so far.
func (p *process) heap() int64 {
	p.t.Helper()
	r := send("GET", p.admin+"/metrics", "", "")
	for line := range strings.SplitSeq(r.body, "\n") {
		if v, ok := strings.CutPrefix(line, "go_memstats_heap_sys_bytes "); ok {
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return int64(f)
		}
	}
	p.t.Fatalf("no heap in the metrics: %d", r.status)
	return 0
}

// endless gives n bytes without having them.
type endless struct{ n int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(b)), e.n)
	for i := range b[:n] {
		b[i] = byte(e.n - int64(i))
	}
	e.n -= n
	return int(n), nil
}

// TestAGibibyteGoesThroughASmallHeap: as an answer, which the caller gets whole
// and the record says is not kept, and as a request, which waits in a file.
func TestAGibibyteGoesThroughASmallHeap(t *testing.T) {
	const size = 1 << 30
	const room = 64 << 20
	var got int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/down" {
			io.Copy(w, &endless{size})
		}
	}))
	defer upstream.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	os.WriteFile(config, []byte("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nledger: {url: 'sqlite://"+dir+"/l.db'}\nroutes: [{name: all, upstream: '"+upstream.URL+"', limits: {request: 2GiB}}]\n"), 0o600)
	p := launch(t, []string{"TMPDIR=" + dir}, "serve", "--config", config)

	call := func(key, path string, body io.Reader) (int64, string, *http.Response) {
		t.Helper()
		req, _ := http.NewRequest("POST", p.url+path, body)
		req.Header.Set("Idempotency-Key", key)
		resp, err := testClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		sum := sha256.New()
		n, err := io.Copy(sum, resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return n, hex.EncodeToString(sum.Sum(nil)), resp
	}
	n, sum, resp := call("down", "/down", strings.NewReader("x"))
	if n != size || resp.StatusCode != 200 {
		t.Errorf("%d bytes came through, status %d", n, resp.StatusCode)
	}
	if h := p.heap(); h > room {
		t.Errorf("a large answer took %d MiB of heap", h>>20)
	}
	if r := send("POST", p.url+"/down", "down", "x"); r.status != 409 || r.code() != "response_not_retained" {
		t.Errorf("the duplicate: %d %s", r.status, r.body)
	}
	doc := send("GET", p.url+"/_fencepost/v1/operations/down", "", "")
	if !strings.Contains(doc.body, sum) || !strings.Contains(doc.body, strconv.Itoa(size)) {
		t.Errorf("the record does not say what it was: %s", doc.body)
	}

	call("up", "/up", &endless{size})
	if got != size {
		t.Errorf("the upstream got %d bytes", got)
	}
	if _, _, resp := call("up", "/up", &endless{size}); resp.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same gibibyte again: %d", resp.StatusCode)
	}
	if h := p.heap(); h > room {
		t.Errorf("a large request took %d MiB of heap", h>>20)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "fencepost-body-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSealedResponsesCannotBeReadOnDisk: the file, its log and all, before and
// after a crash, and with a new key in front.
func TestSealedResponsesCannotBeReadOnDisk(t *testing.T) {
	const secret = "4242-4242-4242-4242"
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/"+secret)
		io.WriteString(w, strings.Repeat(secret+"\n", 1000))
	}))
	defer upstream.Close()
	dir := t.TempDir()
	write := func(name, seal string) string {
		file := filepath.Join(dir, name)
		os.WriteFile(file, []byte("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\nledger:\n  url: 'sqlite://"+dir+"/l.db'\n  seal: ["+seal+"]\nroutes: [{name: all, upstream: '"+upstream.URL+"'}]\n"), 0o600)
		return file
	}
	const one, two = "{id: one, key: '${SEAL_ONE}'}", "{id: two, key: '${SEAL_TWO}'}"
	env := []string{"SEAL_ONE=" + strings.Repeat("1a", 32), "SEAL_TWO=" + strings.Repeat("2b", 32)}
	p := launch(t, env, "serve", "--config", write("one.yaml", one))
	first := p.post("k", "x")
	p.signal(syscall.SIGKILL)
	p.ended()
	files, _ := filepath.Glob(filepath.Join(dir, "l.db*"))
	size := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		size += len(b)
		if bytes.Contains(b, []byte(secret)) || bytes.Contains(b, []byte(strings.Repeat("\x1a", 32))) {
			t.Errorf("%s holds the response or the key", f)
		}
	}
	if size == 0 {
		t.Fatal("there is no ledger to look at")
	}
	p = launch(t, env, "serve", "--config", write("two.yaml", two+", "+one))
	again := p.post("k", "x")
	if again.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Location") != "/"+secret {
		t.Errorf("%d %v", again.status, again.header)
	}
	p.signal(syscall.SIGTERM)
	p.ended()
	p = launch(t, env, "serve", "--config", write("lost.yaml", two))
	if r := p.post("k", "x"); r.status != 503 || r.code() != "response_sealed" {
		t.Errorf("without its key: %d %s", r.status, r.body)
	}
	if strings.Contains(p.logged(), strings.Repeat("2b", 32)) {
		t.Error("a key is in the log")
	}
}

// TestClientsSpeakTLSToTheProgram: as configured, with a certificate that is
// exchanged while it runs.
func TestClientsSpeakTLSToTheProgram(t *testing.T) {
	prov := newProvider(t)
	dir := t.TempDir()
	issue(t, dir, "127.0.0.1")
	config := filepath.Join(dir, "c.yaml")
	os.WriteFile(config, []byte("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\ntls: {cert: "+dir+"/cert.pem, key: "+dir+"/key.pem}\nledger: {url: 'sqlite://"+dir+"/l.db'}\nroutes: [{name: all, upstream: '"+prov.URL+"'}]\n"), 0o600)
	p := launch(t, nil, "serve", "--config", config)
	addr := strings.TrimPrefix(p.url, "http://")
	for _, protocol := range []string{"HTTP/2.0", "HTTP/1.1"} {
		c := trusting(t, filepath.Join(dir, "cert.pem"), protocol == "HTTP/2.0")
		for range 2 {
			req, _ := http.NewRequest("POST", "https://"+addr+"/v1/charges", bufio.NewReader(strings.NewReader("x")))
			req.Header.Set("Idempotency-Key", "tls-"+protocol[5:6])
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.Proto != protocol || resp.StatusCode != 201 {
				t.Errorf("%s %d", resp.Proto, resp.StatusCode)
			}
		}
		if _, effects := prov.counts("tls-" + protocol[5:6]); effects != 1 {
			t.Errorf("%s: %d effects", protocol, effects)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.ended(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	os.Remove(filepath.Join(dir, "key.pem"))
	out := launchRaw(t, nil, "serve", "--config", config)
	if code := out.ended(); code == 0 || !strings.Contains(out.logged(), "tls.key") {
		t.Errorf("without its key it starts, or does not say why: %d %s", code, out.logged())
	}
}

package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// server is a redis-server of a test, on its own port and in its own directory.
type server struct {
	t    testing.TB
	port int
	dir  string
	args []string
	bin  string
	cmd  *exec.Cmd
	wait chan struct{}
	// admin speaks to the server past every store.
	admin *redis.Client
}

// binary finds a program, or skips the test.
func binary(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("FENCEPOST_TEST_REDIS") == "require" {
			t.Fatalf("%s is required and not installed: %v", name, err)
		}
		t.Skipf("%s is not installed: tests against a real Redis are skipped (FENCEPOST_TEST_REDIS=require makes this a failure)", name)
	}
	return path
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startServer runs a redis-server with the arguments until the test ends.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, port: freePort(t), dir: t.TempDir(), args: args, bin: binary(t, "redis-server")}
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr(), Protocol: 2, DisableIdentity: true})
	s.start()
	t.Cleanup(func() {
		s.kill()
		s.admin.Close()
	})
	return s
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }
func (s *server) url() string  { return "redis://" + s.addr() + "/0" }

func (s *server) start() {
	s.t.Helper()
	args := append([]string{"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no"}, s.args...)
	s.cmd = exec.Command(s.bin, args...)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	log.Close()
	wait := make(chan struct{})
	s.wait = wait
	cmd := s.cmd
	go func() {
		_ = cmd.Wait()
		close(wait)
	}()
	eventually(s.t, "redis-server to answer", func() bool { return answers(s.addr()) })
}

// answers speaks PING by hand: it works with TLS off, with or without a password.
func answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(c, "PING\r\n")
	b := make([]byte, 64)
	n, _ := c.Read(b)
	got := string(b[:n])
	return strings.HasPrefix(got, "+PONG") || strings.HasPrefix(got, "-NOAUTH")
}

// kill is kill -9.
func (s *server) kill() { s.signal(syscall.SIGKILL) }

func (s *server) signal(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Signal(sig)
	<-s.wait
	s.cmd = nil
}

func (s *server) freeze() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *server) thaw()   { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

func (s *server) do(args ...any) any {
	s.t.Helper()
	v, err := s.admin.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return v
}

// eventually waits for what no event announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open opens a store that is closed with the test and checks rarely.
func open(t testing.TB, url string, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{URL: url, Logger: quiet(), CheckEvery: time.Hour}
	for _, f := range change {
		f(&o)
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var serial atomic.Int64

func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, serial.Add(1)) }

// reserveWrite is the insert of a fresh operation.
func reserveWrite(scope, key string) keystore.Write {
	w, no := keystore.Next(nil, keystore.Event{
		Kind: keystore.Reserve, Writer: unique("w"), By: "instance-1", Attempt: unique("a"), Silence: 30 * time.Second, Keep: 24 * time.Hour,
		New: &keystore.Record{
			ID: keystore.ID{Scope: scope, Key: key}, Operation: unique("op"), Fingerprint: "raw1:00", Method: "POST", Route: "charges",
			Target: keystore.Target{Scheme: "https", Host: "api.example.com", Path: "/v1/charges"},
		},
	}, 0, nil)
	if no != keystore.Allowed {
		panic(string(no))
	}
	return w
}

func next(r keystore.Record, ev keystore.Event) keystore.Write {
	ev.Writer, ev.By, ev.Attempt = unique("w"), "instance-1", r.AttemptID
	w, no := keystore.Next(&r, ev, r.UpdatedAt, nil)
	if no != keystore.Allowed {
		panic(string(no))
	}
	return w
}

func markWrite(r keystore.Record) keystore.Write {
	return next(r, keystore.Event{Kind: keystore.Mark, Silence: 30 * time.Second})
}

func completeWrite(r keystore.Record, body string) keystore.Write {
	return next(r, keystore.Event{
		Kind: keystore.Complete, Keep: time.Hour, Body: []byte(body),
		Outcome: &keystore.Outcome{Source: keystore.FromResponse, Status: 201, BodySize: int64(len(body)), Retained: true},
	})
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return c
}

func mustInsert(t testing.TB, s *Store, w keystore.Write) keystore.Reply {
	t.Helper()
	r, err := s.Insert(ctx(t), w)
	if err != nil {
		t.Fatalf("insert: %v", err)
	}
	return r
}

func mustSwap(t testing.TB, s *Store, w keystore.Write) keystore.Reply {
	t.Helper()
	r, err := s.Swap(ctx(t), w)
	if err != nil {
		t.Fatalf("swap: %v", err)
	}
	return r
}

// complete takes a fresh operation to its end.
func complete(t testing.TB, s *Store, scope, key, body string) keystore.Record {
	t.Helper()
	r := mustInsert(t, s, reserveWrite(scope, key))
	if r.Result != keystore.Written {
		t.Fatalf("insert of %s/%s: result %d", scope, key, r.Result)
	}
	r = mustSwap(t, s, markWrite(r.Record))
	return mustSwap(t, s, completeWrite(r.Record, body)).Record
}

package sqlitestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fencepost/keystore"
)

// childEnv makes the test binary run one of children instead of the tests, on
// the ledger named by its value: "what:path".
const childEnv = "FENCEPOST_SQLITESTORE_CHILD"

var children = map[string]func(path string) error{"hammer": hammer, "hold": holdOpen, "open": openOnly, "full": fillUp}

func TestMain(m *testing.M) {
	what, path, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		os.Exit(m.Run())
	}
	if err := children[what](path); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// child is a process of its own on the same ledger.
type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func spawn(t *testing.T, what, path string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+what+":"+path)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = attr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.kill() })
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// line is the child's next line of output, or "" at its end.
func (c *child) line() string {
	if !c.out.Scan() {
		return ""
	}
	return c.out.Text()
}

// hammer lets 16 writers bring operations to Completed, and acknowledges each
// write on standard output after the store reported it.
func hammer(path string) error {
	s, err := Open(context.Background(), Options{Path: path, Logger: quiet()})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			var tb failing
			for {
				id := keystore.ID{Scope: "a", Key: randomKey()}
				ack := func(rep keystore.Reply, err error) keystore.Record {
					r := written(tb, rep, err)
					fmt.Fprintf(os.Stdout, "%s %d\n", r.Key, r.Version)
					return r
				}
				r := ack(s.Insert(context.Background(), reservation(tb, id)))
				r = ack(s.Swap(context.Background(), mark(tb, r)))
				ack(s.Swap(context.Background(), complete(tb, r, []byte(r.Key), time.Hour)))
			}
		})
	}
	wg.Wait()
	return nil
}

// failing is a testing.TB for children.
type failing struct{ testing.TB }

func (failing) Helper() {}
func (failing) Fatal(a ...any) {
	fmt.Println(append([]any{"error:"}, a...)...)
	os.Exit(1)
}
func (failing) Fatalf(f string, a ...any) {
	fmt.Printf("error: "+f+"\n", a...)
	os.Exit(1)
}

func TestKill(t *testing.T) {
	rounds := 20
	if testing.Short() || raceOn {
		rounds = 4
	}
	path := newPath(t)
	acked := map[string]uint64{}
	for range rounds {
		c := spawn(t, "hammer", path, nil)
		time.AfterFunc(time.Duration(20+rand.IntN(200))*time.Millisecond, func() { _ = c.cmd.Process.Kill() })
		for l := c.line(); l != ""; l = c.line() {
			var key string
			var version uint64
			if n, _ := fmt.Sscanf(l, "%s %d", &key, &version); n != 2 || strings.HasPrefix(l, "error") {
				t.Fatalf("the child says %q", l)
			}
			acked[key] = max(acked[key], version)
		}
		_ = c.cmd.Wait()

		s := openWith(t, Options{Path: path})
		for key, version := range acked {
			g := get(t, s, keystore.ID{Scope: "a", Key: key}, keystore.Found)
			if g.Record.Version < version {
				t.Fatalf("%s: version %d was acknowledged, %d is there", key, version, g.Record.Version)
			}
			if g.Record.State == keystore.Completed && string(g.Body) != key {
				t.Fatalf("%s has the body %q", key, g.Body)
			}
		}
		mustClose(t, s)
		sound(t, path)
	}
	t.Logf("%d operations were acknowledged", len(acked))
}

// holdOpen has the ledger until it is killed.
func holdOpen(path string) error {
	if err := openOnly(path); err != nil {
		return err
	}
	fmt.Println("open")
	select {}
}

var kept *Store

func openOnly(path string) (err error) {
	kept, err = Open(context.Background(), Options{Path: path, Logger: quiet()})
	return err
}

func TestSecondProcessIsRefused(t *testing.T) {
	path := newPath(t)
	c := spawn(t, "hold", path, nil)
	if l := c.line(); l != "open" {
		t.Fatalf("the child says %q", l)
	}
	link, hard := path+".link", path+".hard"
	if err := errors.Join(os.Symlink(path, link), os.Link(path, hard)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link, hard} {
		_, err := Open(t.Context(), Options{Path: name})
		says(t, err, "in use by another process", "Redis")
	}
	if err := os.Remove(hard); err != nil {
		t.Fatal(err)
	}
	// Somebody tidies up: the ledger itself is locked too.
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Options{Path: path})
	says(t, err, "in use by another process")
	c.kill()
	reserve(t, openWith(t, Options{Path: path}), keystore.ID{Scope: "a", Key: "k"})
}

func TestSecondStoreInOneProcessIsRefused(t *testing.T) {
	s := openWith(t, Options{Path: newPath(t)})
	_, err := Open(t.Context(), Options{Path: s.opts.Path})
	says(t, err, "in use")
	reserve(t, s, keystore.ID{Scope: "a", Key: "k"})
}

// fillUp lives under a limit on the size of files: writes beyond it fail in the
// kernel. Reports the steps it got through.
func fillUp(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(context.Background(), Options{Path: path, Logger: quiet()})
	if err != nil {
		return err
	}
	limit := func(n uint64) error {
		var l syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
			return err
		}
		l.Cur = min(n, l.Max)
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l)
	}
	var tb failing
	id := keystore.ID{Scope: "a", Key: "k"}
	fi, err := os.Stat(path + "-wal")
	if err != nil {
		return err
	}
	size := fi.Size()
	step := func(name string, try func() (keystore.Reply, error)) (keystore.Record, error) {
		if fi, err := os.Stat(path + "-wal"); err == nil {
			size = max(size, fi.Size())
		}
		if err := limit(uint64(size) + 1000); err != nil {
			return keystore.Record{}, err
		}
		// Whatever still fits into the log that is there goes through.
		for range 100 {
			if _, err = s.Insert(context.Background(), reservation(tb, keystore.ID{Scope: "fill", Key: randomKey()})); err != nil {
				break
			}
		}
		rep, err := try()
		if !errors.Is(err, keystore.ErrNotWritten) {
			return keystore.Record{}, fmt.Errorf("%s on a full disk: result %d, %w", name, rep.Result, err)
		}
		if err := limit(1 << 40); err != nil {
			return keystore.Record{}, err
		}
		rep, err = try()
		if err != nil || rep.Result != keystore.Written {
			return keystore.Record{}, fmt.Errorf("%s after there is room: result %d, %w", name, rep.Result, err)
		}
		fmt.Println(name)
		return rep.Record, nil
	}
	w := reservation(tb, id)
	r, err := step("insert", func() (keystore.Reply, error) { return s.Insert(context.Background(), w) })
	if err != nil {
		return err
	}
	w = mark(tb, r)
	if r, err = step("mark", func() (keystore.Reply, error) { return s.Swap(context.Background(), w) }); err != nil {
		return err
	}
	w = complete(tb, r, body200, time.Hour)
	if _, err = step("complete", func() (keystore.Reply, error) { return s.Swap(context.Background(), w) }); err != nil {
		return err
	}
	return s.Close()
}

func TestDiskFullInTheKernel(t *testing.T) {
	path := newPath(t)
	c := spawn(t, "full", path, nil)
	for _, want := range []string{"insert", "mark", "complete", ""} {
		if l := c.line(); l != want {
			t.Fatalf("the child says %q, want %q", l, want)
		}
	}
	s := openWith(t, Options{Path: path})
	g := get(t, s, keystore.ID{Scope: "a", Key: "k"}, keystore.Found)
	if g.Record.State != keystore.Completed || string(g.Body) != string(body200) {
		t.Fatalf("%+v", g)
	}
	mustClose(t, s)
	sound(t, path)
}

// A file or folder that cannot be written is said so. Root may write anything,
// so a child without its rights tries.
func TestReadOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give rights away")
	}
	dir, err := os.MkdirTemp("", "fencepost")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := dir + "/ledger.db"
	s := openWith(t, Options{Path: path})
	mustClose(t, s)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	tool, err := os.OpenFile(dir+"/child", os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(tool, binary); err != nil {
		t.Fatal(err)
	}
	tool.Close()
	for name, prepare := range map[string]func() error{
		"folder": func() error {
			return errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666), os.Chmod(path+".lock", 0o666))
		},
		"file": func() error { return errors.Join(os.Chmod(dir, 0o777), os.Chmod(path, 0o444)) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := prepare(); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(dir + "/child")
			cmd.Env = append(os.Environ(), childEnv+"=open:"+path)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "check the permissions of the file and its folder") {
				t.Fatalf("the child says %q: %v", out, err)
			}
		})
	}
}

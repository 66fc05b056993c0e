package sqlitestore

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
)

// randomKey looks like the keys that callers send.
func randomKey() string { return rand.Text() }

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger.db") }

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// openWith opens a store that the test closes.
func openWith(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet()
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func reserve(t testing.TB, s *Store, id keystore.ID) keystore.Record {
	t.Helper()
	rep, err := s.Insert(t.Context(), reservation(t, id))
	return written(t, rep, err)
}

func get(t testing.TB, s *Store, id keystore.ID, want keystore.Result) keystore.Reply {
	t.Helper()
	rep, err := s.Get(t.Context(), id)
	if err != nil || rep.Result != want {
		t.Fatalf("%v: result %d, want %d: %v", id, rep.Result, want, err)
	}
	return rep
}

func nothingWritten(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, keystore.ErrNotWritten) {
		t.Fatalf("%v does not say that nothing was written", err)
	}
}

func says(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// other is a connection of another program.
func other(t testing.TB, path string) *conn {
	t.Helper()
	c, err := dial(path, "", false, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// sound fails the test unless the file is whole and its tables agree.
func sound(t testing.TB, path string) {
	t.Helper()
	c, err := dial(path, "", false, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	st, err := c.prepare("PRAGMA integrity_check")
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	if ok, err := st.step(); !ok || st.text(0) != "ok" {
		t.Fatalf("integrity_check: %v %q", err, st.text(0))
	}
	st.reset()
	for what, q := range map[string]string{
		"bodies without a record":         "SELECT count(*) FROM bodies WHERE op NOT IN (SELECT id FROM ops)",
		"bodies of what is not completed": "SELECT count(*) FROM ops JOIN bodies ON op = id WHERE state <> 4",
		"completed without a body":        "SELECT count(*) FROM ops WHERE state = 4 AND id NOT IN (SELECT op FROM bodies)",
	} {
		if n, err := c.one(q); err != nil || n != 0 {
			t.Fatalf("%d %s: %v", n, what, err)
		}
	}
	all, err := c.prepare("SELECT " + rowColumns + ", key, (SELECT length(body) FROM bodies WHERE op = id) FROM ops WHERE scope <> 'bulk'")
	if err != nil {
		t.Fatal(err)
	}
	defer all.close()
	for {
		ok, err := all.step()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		met := all.row()
		r, err := keystore.Decode(keystore.ID{Scope: "a", Key: all.text(8)}, met.col, met.rec)
		if err != nil {
			t.Fatal(err)
		}
		// What the columns say and what the record says is of one write.
		last := r.History[len(r.History)-1]
		if last.Version != r.Version || last.To != r.State || last.At != r.UpdatedAt {
			t.Fatalf("columns and record differ: %+v", r)
		}
		if r.Outcome != nil && r.Outcome.BodySize != all.int(9) {
			t.Fatalf("a body of %d bytes, not %d: %+v", all.int(9), r.Outcome.BodySize, r)
		}
	}
}

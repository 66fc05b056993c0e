package proxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"fencepost/keystore"
)

// ledger is the store as this instance uses it: every change goes through the
// transition function, under this instance's name.
type ledger struct {
	store    keystore.Store
	instance string
	metrics  *metrics
	serial   atomic.Uint64
	gone     keystore.OwnerGone
	vault    *keystore.Vault
}

func newLedger(s keystore.Store, instance string, m *metrics, v *keystore.Vault) *ledger {
	l := &ledger{store: s, instance: instance, metrics: m, vault: v}
	if s.Exclusive() {
		// One process a ledger: whoever else is named in it is gone.
		l.gone = func(owner string) bool { return owner != instance }
	}
	return l
}

// NewInstance names a process: the host, so that a person knows where to look,
// and random bits, so that a restart is another instance.
func NewInstance() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "fencepost"
	}
	if len(host) > 64 {
		host = host[:64]
	}
	return host + "-" + hex.EncodeToString(b[:])
}

// writer returns an id that no other write in the world has.
func (l *ledger) writer() string {
	return l.instance + "/" + strconv.FormatUint(l.serial.Add(1), 36)
}

func (l *ledger) insert(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	start := time.Now()
	r, err := l.store.Insert(ctx, w)
	l.metrics.ledger("insert", start, err)
	return r, err
}

func (l *ledger) swap(ctx context.Context, w keystore.Write) (keystore.Reply, error) {
	start := time.Now()
	r, err := l.store.Swap(ctx, w)
	l.metrics.ledger("swap", start, err)
	return r, err
}

func (l *ledger) get(ctx context.Context, id keystore.ID) (keystore.Reply, error) {
	start := time.Now()
	r, err := l.store.Get(ctx, id)
	l.metrics.ledger("get", start, err)
	return r, err
}

func (l *ledger) list(ctx context.Context, q keystore.Query) (keystore.Page, error) {
	start := time.Now()
	page, err := l.store.List(ctx, q)
	l.metrics.ledger("list", start, err)
	return page, err
}

func (l *ledger) delete(ctx context.Context, id keystore.ID, version uint64) (keystore.Reply, error) {
	start := time.Now()
	r, err := l.store.Delete(ctx, id, version)
	l.metrics.ledger("delete", start, err)
	return r, err
}

func (l *ledger) lease(ctx context.Context, scope, run string) (keystore.LeaseReply, error) {
	start := time.Now()
	r, err := l.store.Lease(ctx, scope, run)
	l.metrics.ledger("lease", start, err)
	return r, err
}

func (l *ledger) swapLease(ctx context.Context, w keystore.LeaseWrite) (keystore.LeaseReply, error) {
	start := time.Now()
	r, err := l.store.SwapLease(ctx, w)
	l.metrics.ledger("swaplease", start, err)
	return r, err
}

// maxTries bounds how often one change is tried against a record that keeps
// moving. Each try lost means that somebody else's write won.
const maxTries = 16

// change applies ev, in this instance's name unless it brings another, to cur,
// and to whatever the record has become when another write came between, for as
// long as the transition function allows it. It returns the record as it stands,
// and why the event was refused if it was.
// Result is Written, LeaseLost, NotFound or, after too many lost tries, Conflict.
func (l *ledger) change(ctx context.Context, cur keystore.Record, now keystore.Instant, ev keystore.Event) (keystore.Reply, keystore.Refusal, error) {
	if ev.By == "" {
		ev.By = l.instance
	}
	ev.Writer = l.writer()
	if ev.Outcome != nil && ev.Kind != keystore.Note {
		var err error
		if ev.Outcome, ev.Body, err = l.vault.Store(&cur, ev.Outcome, ev.Body); err != nil {
			return keystore.Reply{Record: cur, Now: now}, keystore.Allowed, err
		}
	}
	rep := keystore.Reply{Record: cur, Now: now, Result: keystore.Conflict}
	for range maxTries {
		w, no := keystore.Next(&rep.Record, ev, rep.Now, l.gone)
		if no != keystore.Allowed {
			return rep, no, nil
		}
		r, err := l.swap(ctx, w)
		if err != nil {
			return rep, keystore.Allowed, err
		}
		if r.Result != keystore.Conflict {
			return r, keystore.Allowed, nil
		}
		rep = r
	}
	return rep, keystore.Allowed, nil
}

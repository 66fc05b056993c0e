package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// Store is a ledger in Redis, shared by any number of processes.
type Store struct {
	opt  Options
	topo topology
	// instance is the field of meta that counts this Store's own writes.
	instance string
	byNode   sync.Map // *redis.Client → *lanes
	scopes   sync.Map // name → *scope
	// ledger stands for the ledger as a whole: its meta is the key
	// prefix:state, which says of all scopes what meta says of one.
	ledger *scope
	// send puts a call into a flight; trips counts flights. Benchmarks look here.
	send  func(client *redis.Client, c *call)
	trips atomic.Int64

	alarm    atomic.Pointer[alarm]
	evicting atomic.Pointer[string]
	findings atomic.Pointer[[]keystore.Finding]
	// gen and ack are what identity returns; ack is -1 before the first look.
	gen       atomic.Pointer[string]
	ack       atomic.Int64
	accepting sync.Mutex
	// lives are the servers as they were last seen; changes counts those that
	// turned out to be others.
	sighting sync.Mutex
	lives    map[string]life
	changes  atomic.Int64
	// attended is when the watch last looked, attendedOnce that it has.
	attended     atomic.Int64
	attendedOnce atomic.Bool
	probing      sync.Mutex
	isSentinel   bool
	unspread     atomic.Bool // the alarm still has to be told to the other processes

	// life is held for reading by every call; Close waits for it.
	life   sync.RWMutex
	closed bool
	kicked chan struct{}
	stop   context.CancelFunc
	idle   sync.WaitGroup
}

var _ keystore.Store = (*Store)(nil)

// Open returns a Store for the ledger that the options name. It fails on options
// that are wrong or that the server is known not to be able to honour, and not
// because the server is away: a Store whose server is away fails closed, and
// Check says so.
func Open(ctx context.Context, o Options) (*Store, error) {
	a, err := o.complete()
	if err != nil {
		return nil, err
	}
	hush.Do(func() { redis.SetLogger(clientLog{}) })
	var id [9]byte
	rand.Read(id[:])
	s := &Store{opt: o, instance: "i:" + hex.EncodeToString(id[:]), kicked: make(chan struct{}, 1), lives: map[string]life{}}
	s.isSentinel = a.kind == sentinel
	s.send = func(client *redis.Client, c *call) { s.lanes(client).add(c) }
	s.ack.Store(-1)
	s.ledger = &scope{name: "", meta: o.Prefix + ":state"}
	s.topo = o.connect(a, s.greet)
	if o.AOF {
		if err := s.knowsWaitAOF(ctx); err != nil {
			_ = s.topo.Close() // the other error is the one to report
			return nil, err
		}
	}
	var background context.Context
	background, s.stop = context.WithCancel(context.Background())
	s.idle.Go(func() { s.watch(background) })
	return s, nil
}

func defaultTLS() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }

// enter begins a call; the caller must leave.
func (s *Store) enter() error {
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return fmt.Errorf("redis ledger: %w: %w", keystore.ErrClosed, keystore.ErrNotWritten)
	}
	return nil
}

func (s *Store) leave() { s.life.RUnlock() }

// Exclusive implements [keystore.Store]: a Redis ledger never is.
func (s *Store) Exclusive() bool { return false }

// Close waits for the calls under way, takes this Store's counters out of the
// ledger and lets go of the connections.
func (s *Store) Close() error {
	s.stop()
	s.idle.Wait()
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.Timeout)
	defer cancel()
	s.forgetInstance(ctx)
	return s.topo.Close()
}

// forgetInstance removes the i: fields. What it cannot remove is a few bytes
// that nobody reads.
func (s *Store) forgetInstance(ctx context.Context) {
	pipes := map[*redis.Client]redis.Pipeliner{}
	for _, sc := range append(s.known(), s.ledger) {
		if sc.remembers().i == 0 {
			continue
		}
		client, err := s.topo.node(ctx, sc)
		if err != nil {
			return
		}
		if pipes[client] == nil {
			pipes[client] = client.Pipeline()
		}
		pipes[client].HDel(ctx, sc.meta.(string), s.instance)
	}
	for _, p := range pipes {
		_, _ = p.Exec(ctx) // see above
	}
}

// allScopes returns the scopes of the ledger and of this process.
func (s *Store) allScopes(ctx context.Context) ([]*scope, error) {
	key := s.opt.Prefix + ":scopes"
	var names []string
	err := s.direct(ctx, key, func(ctx context.Context, client *redis.Client) (err error) {
		names, err = client.SMembers(ctx, key).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, n := range names {
		if _, err := s.scope(n); err != nil {
			errs = append(errs, err)
		}
	}
	return s.callers(), errors.Join(errs...)
}

// direct runs a command that may run twice on the primary of a key that belongs
// to no scope, waiting out what passes.
func (s *Store) direct(ctx context.Context, key string, fn func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	pause := 5 * time.Millisecond
	for {
		client, err := s.topo.node(ctx, &scope{meta: key})
		if err != nil {
			return err
		}
		if err = fn(ctx, client); err == nil {
			return nil
		}
		if errors.Is(err, errNoticed) {
			continue
		}
		switch classify(err, true) {
		case moved:
			s.topo.reload()
			s.kick()
		case passing:
		default:
			return err
		}
		if !sleep(ctx, nil, &pause) {
			return err
		}
	}
}

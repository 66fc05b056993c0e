package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// call is one run of a script, as a command of go-redis that is never re-run
// by it, and what came of it.
type call struct {
	*redis.Cmd

	script *script
	sc     *scope
	// read says that the script cannot write; wait that replicas must confirm;
	// once that a run whose fate is not known must not be repeated.
	read, wait, once bool
	// leads says that a send may follow.
	leads bool

	// What varies between calls lives here, so that an argument is a pointer and
	// boxing it costs nothing.
	subject, prev, version, writer, key, rec, body, token string
	deadline, expires                                     int64
	clock                                                 int64

	args []any
	size int

	// place is where the call stands: queued, taken by a flight, or left by its
	// caller before that.
	place atomic.Uint32
	done  chan struct{}
	// sent is set when the command is written to a connection's buffer. What was
	// never written there cannot have run, whatever the error is.
	sent bool
	// short is why the replicas did not confirm, in a flight that waits.
	short error
	// issued is what was known of the scope before the try, gen and ack of the
	// ledger, founded that it has the scope.
	issued  memory
	gen     string
	ack     int64
	founded bool
}

// maxLoads bounds how often one call loads its script.
const maxLoads = 20

const (
	queued uint32 = iota
	taken
	left
)

// NoRetry tells both of go-redis's clients to run the command once: a cluster
// client does not honour MaxRetries.
func (c *call) NoRetry() bool { return true }

// MarshalBinary is how the clock's offset stands among the arguments. It is
// called at the moment when the command is written, which is what it is for.
func (c *call) MarshalBinary() ([]byte, error) {
	c.sent = true
	if c.clock == 0 {
		return zero, nil
	}
	return strconv.AppendInt(nil, c.clock, 10), nil
}

var zero = []byte("0")

// newCall begins a call with its first two KEYS. The others follow, then ARGV:
// the call itself for the clock, the instance, and what the script takes.
func (s *Store) newCall(sc *scope, sp *script, subject string) *call {
	c := &call{script: sp, sc: sc, subject: subject, clock: s.opt.clock(), done: make(chan struct{}, 1)}
	c.args = append(make([]any, 0, 24), "evalsha", sp.sha, sp.keys, &c.subject, sc.meta)
	return c
}

func (c *call) with(args ...any) { c.args = append(c.args, args...) }

// reply is what every script returns.
type reply struct {
	code string
	now  keystore.Instant
	memory
	wrote bool
	bad   string
	gen   string
	rest  []any
}

// errForeign marks a reply that belongs to another call.
var errForeign = errors.New("the reply is of another operation: the connection is out of step")

func (c *call) reply() (reply, error) {
	v, _ := c.Val().([]any)
	if len(v) < 9 {
		return reply{}, fmt.Errorf("the reply of %s.lua has %d parts", c.script.name, len(v))
	}
	code, ok0 := v[0].(string)
	echo, ok1 := v[1].(string)
	now, ok2 := v[2].(int64)
	n, ok3 := v[3].(int64)
	i, ok4 := v[4].(int64)
	wrote, ok5 := v[5].(int64)
	ack, ok6 := v[6].(int64)
	bad, ok7 := v[7].(string)
	gen, ok8 := v[8].(string)
	if !(ok0 && ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7 && ok8) {
		return reply{}, fmt.Errorf("the reply of %s.lua is malformed", c.script.name)
	}
	if echo != c.subject {
		return reply{}, errForeign
	}
	return reply{code: code, now: keystore.Instant(now), memory: memory{n, i, ack}, wrote: wrote == 1, bad: bad, gen: gen, rest: v[9:]}, nil
}

// run carries a call out within the store's bound: tries, loads the script where
// it is missing, waits out what passes, and repeats once what may have run. The
// repeat cannot do harm, since a write recognises itself, and turns a lost reply
// into an answer. An error says whether anything may have been written.
func (s *Store) run(ctx context.Context, c *call) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, failed(c.script.name, err, true)
	}
	timer := time.NewTimer(s.opt.Timeout)
	defer timer.Stop()
	var (
		doubt bool // a try may have run
		loads int
		// renewals counts acknowledgements that came between.
		renewals int
		pause    = 5 * time.Millisecond
	)
	for {
		if c.leads {
			if err := s.mistrusted(c.script.name, !doubt); err != nil {
				return reply{}, err
			}
		}
		c.issued, c.founded = c.sc.remembers(), c.sc.founded.Load()
		c.gen, c.ack = s.identity()
		err := s.try(ctx, c, timer.C)
		if err == nil {
			r, err := c.reply()
			if err != nil {
				s.opt.Logger.ErrorContext(ctx, "the redis ledger's reply cannot be used", "call", c.script.name, "err", err)
				return reply{}, failed(c.script.name, err, c.read)
			}
			if c.wait && c.short != nil && r.code == "written" {
				// The write is there and not believed: the answer of WAIT said so,
				// or was lost with the connection, which a repeat may mend.
				if classify(c.short, true) == maybe && !doubt && !errors.Is(c.short, keystore.ErrReplicas) {
					doubt = true
					continue
				}
				return r, failed(c.script.name, fmt.Errorf("%w: %w", keystore.ErrReplicas, c.short), false)
			}
			err = s.judge(ctx, c, r, doubt)
			if err == errRenewed {
				_ = s.register(ctx, c.sc) // what it could not do shows in the next try
				if renewals++; renewals <= 3 {
					continue
				}
				err = failed(c.script.name, err, !doubt)
			}
			return r, err
		}
		if errors.Is(err, errNoticed) && !c.sent {
			continue // once for each alarm; what may lead to a send ends above
		}
		if errors.Is(err, errGone) {
			return reply{}, failed(c.script.name, err, c.read)
		}

		again := false
		switch classify(err, c.sent) {
		case unloaded:
			// Nothing ran, so this may be repeated; more than once only where
			// somebody flushes scripts all the time.
			loads++
			if again = loads <= maxLoads; again {
				if err := s.load(ctx, c); err != nil {
					return reply{}, failed(c.script.name, err, c.read || !doubt)
				}
			}
		case passing:
			again = sleep(ctx, timer.C, &pause)
		case moved:
			s.topo.reload()
			s.kick()
			again = sleep(ctx, timer.C, &pause)
		case maybe:
			s.kick()
			again = !doubt && !c.once
			doubt = true
		case refused:
			if !c.sent && !errors.Is(err, errLeft) {
				s.topo.reload()
				s.kick()
			}
		}
		if !again {
			return reply{}, failed(c.script.name, err, c.read || !doubt)
		}
	}
}

var (
	// errLeft: the caller left before its call was sent.
	errLeft = errors.New("not sent")
	// errGone: the caller left while its call was under way.
	errGone = errors.New("no longer waited for")
)

// try puts the call into a flight and waits for it.
func (s *Store) try(ctx context.Context, c *call, timeout <-chan time.Time) error {
	c.Cmd = redis.NewCmd(ctx, c.args...)
	c.sent, c.short = false, nil
	c.place.Store(queued)
	client, err := s.topo.node(ctx, c.sc)
	if err != nil {
		return err
	}
	s.send(client, c)
	select {
	case <-c.done:
		return c.Cmd.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout:
		err = errTimeout
	}
	if c.place.CompareAndSwap(queued, left) {
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	select {
	case <-c.done:
		// It ended at the same moment.
		return c.Cmd.Err()
	default:
		return fmt.Errorf("%w: %w", errGone, err)
	}
}

// load puts the call's script into the node's cache. Nothing of the ledger is
// touched by it.
func (s *Store) load(ctx context.Context, c *call) error {
	client, err := s.topo.node(ctx, c.sc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout/2)
	defer cancel()
	err = client.ScriptLoad(ctx, c.script.text).Err()
	if errors.Is(err, errNoticed) {
		err = client.ScriptLoad(ctx, c.script.text).Err()
	}
	return err
}

// sleep waits a little longer each time. It returns false where the call's time
// is over.
func sleep(ctx context.Context, timeout <-chan time.Time, pause *time.Duration) bool {
	t := time.NewTimer(*pause)
	defer t.Stop()
	*pause = min(*pause*2, 100*time.Millisecond)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-timeout:
	}
	return false
}

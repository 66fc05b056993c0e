package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// A flight is one round trip on one connection. A call that finds a free flight
// leaves at once and alone; calls that come while all flights are out queue, and
// the next flight takes them together. So a lone caller pays nothing for
// batching, and many share round trips without any waiting for company.
const (
	flights  = 2
	maxCalls = 128
	maxBytes = 256 << 10
)

// lane is a queue before one server and its flights. Calls that wait for
// replicas have a lane of their own: one WAIT at the end of a flight serves all
// of it, and nobody else stands behind it.
type lane struct {
	client *redis.Client
	trips  *atomic.Int64
	// confirm makes the command that asks for replicas, nil where none does.
	confirm func() *confirmation

	mu    sync.Mutex
	queue []*call
	out   int
}

type lanes struct {
	plain, waiting lane
}

// lanes returns the two lanes before a server.
func (s *Store) lanes(client *redis.Client) *lanes {
	if v, ok := s.byNode.Load(client); ok {
		return v.(*lanes)
	}
	l := &lanes{plain: lane{client: client, trips: &s.trips}, waiting: lane{client: client, trips: &s.trips}}
	if s.opt.waits() {
		l.waiting.confirm = s.opt.confirmation
	}
	v, _ := s.byNode.LoadOrStore(client, l)
	return v.(*lanes)
}

func (l *lanes) add(c *call) {
	if c.wait {
		l.waiting.add(c)
	} else {
		l.plain.add(c)
	}
}

func (l *lane) add(c *call) {
	l.mu.Lock()
	l.queue = append(l.queue, c)
	start := l.out < flights
	if start {
		l.out++
	}
	l.mu.Unlock()
	if start {
		go l.fly()
	}
}

// fly carries what is queued until nothing is.
func (l *lane) fly() {
	var batch []*call
	var cmds []redis.Cmder
	for {
		batch = l.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		cmds = cmds[:0]
		for _, c := range batch {
			cmds = append(cmds, c)
		}
		l.carry(batch, cmds)
	}
}

// take removes the next flight's calls from the queue, or ends the flight. A
// call that is large by itself flies with little company.
func (l *lane) take(batch []*call) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, n := 0, 0
	for _, c := range l.queue {
		if len(batch) == maxCalls || (len(batch) > 0 && size+c.size > maxBytes) {
			break
		}
		n++
		if c.place.CompareAndSwap(queued, taken) {
			batch = append(batch, c)
			size += c.size
		}
	}
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	if len(batch) == 0 {
		l.out--
	}
	return batch
}

// carry is one round trip. Each call learns its own fate: an error reply is its
// own, a lost connection is everybody's.
func (l *lane) carry(batch []*call, cmds []redis.Cmder) {
	l.trips.Add(1)
	ctx := context.Background() // callers leave by themselves; nobody's end is another's
	if len(batch) == 1 && l.confirm == nil {
		_ = l.client.Process(ctx, batch[0]) // it carries its own error
		batch[0].done <- struct{}{}
		return
	}
	pipe := l.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	var conf *confirmation
	if l.confirm != nil {
		conf = l.confirm()
		_ = pipe.Process(ctx, conf)
	}
	_, _ = pipe.Exec(ctx) // each command carries its own error
	var short error
	if conf != nil {
		short = conf.verdict()
	}
	for _, c := range batch {
		c.short = short
		c.done <- struct{}{}
	}
}

// confirmation is the WAIT or WAITAOF at the end of a flight.
type confirmation struct {
	*redis.Cmd
	replicas int
	aof      bool
}

// NoRetry keeps the flight it ends from being sent twice.
func (c *confirmation) NoRetry() bool { return true }

func (o *Options) confirmation() *confirmation {
	ms := o.ReplicaTimeout.Milliseconds()
	c := &confirmation{replicas: o.Replicas, aof: o.AOF}
	if o.AOF {
		c.Cmd = redis.NewCmd(context.Background(), "waitaof", 1, o.Replicas, ms)
	} else {
		c.Cmd = redis.NewCmd(context.Background(), "wait", o.Replicas, ms)
	}
	return c
}

// verdict returns nil where enough have confirmed.
func (c *confirmation) verdict() error {
	if err := c.Err(); err != nil {
		var reply redis.Error
		if errors.As(err, &reply) {
			return fmt.Errorf("%w: %w", keystore.ErrReplicas, err)
		}
		return err
	}
	if !c.aof {
		got, _ := c.Val().(int64)
		if got < int64(c.replicas) {
			return fmt.Errorf("%w: %d of %d", keystore.ErrReplicas, got, c.replicas)
		}
		return nil
	}
	pair, _ := c.Val().([]any)
	if len(pair) != 2 {
		return fmt.Errorf("%w: WAITAOF answered %v", keystore.ErrReplicas, c.Val())
	}
	local, _ := pair[0].(int64)
	remote, _ := pair[1].(int64)
	if local < 1 || remote < int64(c.replicas) {
		return fmt.Errorf("%w: fsynced by %d of 1 primary and %d of %d replicas", keystore.ErrReplicas, local, remote, c.replicas)
	}
	return nil
}

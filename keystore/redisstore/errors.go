package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// ErrEvicting is in the chain of errors of a ledger whose server may throw
// records away when it is full. Nothing may be sent on its word.
var ErrEvicting = errors.New("the ledger's server may evict records")

// class is what a failed command tells of its execution.
type class uint8

const (
	// maybe: the command may have run, or may still run.
	maybe class = iota
	// refused: it did not run, and trying again at once is of no use.
	refused
	// passing: it did not run, and the reason may pass in moments.
	passing
	// moved: as passing, and the node is no longer the scope's.
	moved
	// unloaded: it did not run because the server does not know the script.
	unloaded
)

// codes are the first words of replies that prove that a command did not run.
// A script is refused so at its first write; see prelude.lua.
var codes = map[string]class{
	"NOSCRIPT": unloaded,

	"MOVED": moved, "ASK": moved, "CLUSTERDOWN": moved,
	"READONLY": moved,
	"TRYAGAIN": passing, "MASTERDOWN": passing, "LOADING": passing, "BUSY": passing,

	"NOREPLICAS": refused, "OOM": refused, "MISCONF": refused, "CROSSSLOT": refused,
	"NOAUTH": refused, "WRONGPASS": refused, "NOPERM": refused, "DENIED": refused,
}

// classify tells what err means for a command of which it is known whether it
// was handed to a connection at all.
func classify(err error, sent bool) class {
	if !sent {
		return refused
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return maybe
	}
	text := reply.Error()
	word, _, _ := strings.Cut(text, " ")
	if c, ok := codes[word]; ok {
		return c
	}
	// Before Redis 7 the refusal of a write inside a script came wrapped:
	// ERR Error running script (call to f_…): @user_script:1: -OOM command …
	for _, w := range []string{"OOM", "READONLY", "NOREPLICAS", "MISCONF"} {
		if strings.Contains(text, "-"+w+" ") {
			return codes[w]
		}
	}
	switch {
	case strings.HasPrefix(text, "ERR max number of clients"),
		strings.HasPrefix(text, "ERR unknown command"),
		strings.HasPrefix(text, "ERR This instance has cluster support disabled"):
		return refused
	}
	return maybe
}

// failed dresses the error of a call for its caller.
func failed(op string, err error, untouched bool) error {
	if errors.Is(err, redis.ErrClosed) {
		err = fmt.Errorf("%w: %w", keystore.ErrClosed, err)
	}
	if untouched {
		return fmt.Errorf("redis ledger: %s: %w: %w", op, err, keystore.ErrNotWritten)
	}
	return fmt.Errorf("redis ledger: %s: %w", op, err)
}

// errTimeout says that the store's own bound was reached.
var errTimeout = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)

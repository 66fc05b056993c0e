package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// clientLog takes what go-redis would print on standard error, a line for every
// failed dial. What matters of it comes back as an error anyway. go-redis has
// one logger for the whole process, and this package is its only user.
type clientLog struct{}

var hush sync.Once

// Printf implements the logger of go-redis.
func (clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l := slog.Default(); l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, fmt.Sprintf(format, v...))
	}
}

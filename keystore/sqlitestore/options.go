package sqlitestore

import (
	"log/slog"
	"time"
)

// Options configure a Store.
type Options struct {
	// Path is the database file. It is created with mode 0600 when it does not
	// exist; its folder must exist. Required.
	Path string
	// Timeout bounds a call's wait for its turn, and then again its commit.
	// Default 2 s.
	Timeout time.Duration
	// Now is the wall clock. Default time.Now.
	Now func() time.Time
	// Logger gets what no caller is told. Default slog.Default().
	Logger *slog.Logger

	// vfs names SQLite's file layer; tests put one that fails here.
	vfs string
}

func (o *Options) fill() {
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

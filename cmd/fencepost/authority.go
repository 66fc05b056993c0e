package main

import (
	"errors"
	"log/slog"

	"fencepost/cmd/fencepost/internal/config"
	"fencepost/proxy"
)

// openAuthority opens the authority that signs for intercepted hosts.
func openAuthority(c *config.Config, log *slog.Logger) (proxy.Authority, error) {
	return nil, errors.New("not yet")
}

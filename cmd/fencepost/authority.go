package main

import (
	"fmt"
	"log/slog"
	"time"

	"fencepost/cmd/fencepost/internal/config"
	"fencepost/proxy/ca"
)

// openAuthority opens the authority that signs for intercepted hosts, and warns
// when it is time to replace it.
func openAuthority(c *config.Config, log *slog.Logger) (*ca.Authority, error) {
	a, err := ca.Open(c.Egress.CA.Dir)
	if err != nil {
		return nil, fmt.Errorf("egress.ca: %w", err)
	}
	if a.NearExpiry() {
		log.Warn("the authority for intercepted hosts ends soon; make a new one with `fencepost ca init`, and give clients its certificate before this one ends", "dir", c.Egress.CA.Dir, "ends", a.NotAfter().UTC().Format(time.RFC3339))
	}
	return a, nil
}

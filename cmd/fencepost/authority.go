package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
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
	for i, r := range c.Routes {
		if r.Upstream != "" || !r.Enforce || r.Match.Host == "" {
			continue
		}
		name := r.Match.Host
		if below, is := strings.CutPrefix(name, "*."); is {
			name = "x." + below
		}
		if _, err := a.Leaf(context.Background(), name); err != nil {
			return nil, fmt.Errorf("routes[%d].match.host: %w; make an authority that may sign for it (fencepost ca init)", i, err)
		}
	}
	if a.NearExpiry() {
		log.Warn("the authority for intercepted hosts ends soon; make a new one with `fencepost ca init`, and give clients its certificate before this one ends", "dir", c.Egress.CA.Dir, "ends", a.NotAfter().UTC().Format(time.RFC3339))
	}
	return a, nil
}

// ownAuthority opens the authority that `run` keeps for itself, and makes it where
// there is none. Nobody but the commands of runs trusts it, and they are told by
// their environment: so one whose time is nearly over is moved aside and replaced.
func ownAuthority(dir string) (*ca.Authority, error) {
	a, err := ca.OpenOrInit(dir, ca.Options{})
	if err == nil && !a.NearExpiry() || err != nil && !errors.Is(err, ca.ErrExpired) {
		return a, err
	}
	aside := fmt.Sprintf("%s-until-%s", dir, time.Now().UTC().Format("20060102T150405.000000"))
	// Another run may have done it in the meantime.
	if err := os.Rename(dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return ca.OpenOrInit(dir, ca.Options{})
}

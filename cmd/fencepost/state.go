package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// stateDir is where `run` keeps its ledger and its authority between runs: the
// user's state folder (XDG Base Directory Specification). It is made, for this user
// alone, if it is not there.
func stateDir() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" || !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("there is no place for the ledger: %w; set XDG_STATE_HOME, or use --config", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	dir := filepath.Join(base, "fencepost")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("there is no place for the ledger: %w; set XDG_STATE_HOME, or use --config", err)
	}
	return dir, nil
}

// errNoCommand says how run is used.
var errNoCommand = errors.New("name the command to run, as in: fencepost run -- python agent.py")

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"fencepost/cmd/fencepost/internal/config"
)

// settings are the flags by which a command finds its configuration.
type settings struct {
	file, upstream, listen, admin, ledger string
}

func (s *settings) register(fs *flag.FlagSet) {
	fs.StringVar(&s.file, "config", "", "configuration `file`")
	fs.StringVar(&s.upstream, "upstream", "", "front this `URL` with one route for everything, without a configuration file")
	fs.StringVar(&s.listen, "listen", "", "listen on this `address` instead of the configured one")
	fs.StringVar(&s.admin, "admin-listen", "", "the same for the admin listener")
	fs.StringVar(&s.ledger, "ledger", "", "keep records in this ledger `URL` instead of the configured one; ${NAME} in it is read from the environment")
}

// load reads the configuration that the flags ask for.
func (s *settings) load() (*config.Config, error) {
	var c *config.Config
	var err error
	switch {
	case s.file != "" && s.upstream != "":
		return nil, errors.New("give --config or --upstream, not both")
	case s.file == "" && s.upstream == "":
		return nil, errors.New("give --config FILE, or --upstream URL to front one API without a file")
	case s.file != "":
		c, err = config.Load(s.file)
	default:
		c, err = config.FromFlags(s.upstream)
	}
	if err != nil {
		return nil, err
	}
	if s.listen != "" {
		c.Listen = s.listen
	}
	if s.admin != "" {
		c.Admin.Listen = s.admin
	}
	if s.ledger != "" {
		u, err := ledgerFlag(s.ledger)
		if err != nil {
			return nil, err
		}
		c.Ledger.URL = config.Secret(u)
	}
	if s.listen != "" || s.admin != "" || s.ledger != "" {
		err = c.Check()
	}
	return c, err
}

// ledgerFlag reads a ledger URL from the arguments.
func ledgerFlag(s string) (string, error) {
	return secretFlag("--ledger", s, "a password", "${NAME} in its place")
}

// secretFlag expands ${NAME} in the value of a flag, and refuses a secret that stands
// in the arguments, where every process of the machine can read it. instead is what
// to write there.
func secretFlag(flag, s, secret, instead string) (string, error) {
	if config.HoldsPassword(s) {
		return "", fmt.Errorf("%s holds %s, and arguments are visible to every process; put it into the environment and write %s", flag, secret, instead)
	}
	out, err := config.Expand(s, os.LookupEnv)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return out, nil
}

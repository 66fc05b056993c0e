package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fencepost/cmd/fencepost/internal/clientenv"
	"fencepost/cmd/fencepost/internal/config"
	"fencepost/keystore/sqlitestore"
	"fencepost/proxy"
	"fencepost/proxy/ca"
)

// runCommand runs one command whose requests go through an egress proxy: its own,
// for as long as the command takes, or one that runs already by the same
// configuration. It ends with the command's exit code.
func runCommand(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var r agentRun
	fs.StringVar(&r.file, "config", "", "configuration `file` with an egress section; without one every host may be reached, and requests that bring an Idempotency-Key are governed")
	fs.StringVar(&r.ledger, "ledger", "", "keep records in this ledger `URL` instead of the configured one, or of one in the user's state folder")
	fs.StringVar(&r.log, "log", "", "append the proxy's log to this `file` (default: errors only, on standard error)")
	fs.BoolVar(&r.quiet, "quiet", false, "no report at the end, unless something is unknown or could not be governed")
	doctor := fs.Bool("doctor", false, "instead of running the command, try which clients of this machine would be governed and trust the authority")
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: fencepost run [flags] -- COMMAND [ARGUMENT …]")
		fs.PrintDefaults()
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	if *doctor {
		return runDoctor(fs.Args(), stdout, stderr)
	}
	if fs.NArg() == 0 {
		fmt.Fprintf(stderr, "fencepost run: %v\n", errNoCommand)
		return exitUsage
	}
	code, err := r.run(fs.Args(), stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "fencepost run: %v\n", err)
	}
	return code
}

// agentRun is one run of a command.
type agentRun struct {
	file, ledger, log string
	quiet             bool
}

func (r *agentRun) run(args []string, stdout, stderr io.Writer) (int, error) {
	c, err := r.load()
	if err != nil {
		return exitUsage, err
	}
	way, err := r.reach(c, stderr)
	if err != nil {
		return exitFailed, err
	}
	defer way.close()
	dir, err := os.MkdirTemp("", "fencepost-run-")
	if err != nil {
		return exitFailed, err
	}
	defer os.RemoveAll(dir)
	env, err := clientenv.Prepare(dir, clientenv.Settings{Proxy: way.proxy.String(), CA: way.authority, Base: os.Environ()})
	if err != nil {
		return exitFailed, err
	}
	for _, warning := range env.Warnings {
		fmt.Fprintln(stderr, "fencepost:", warning)
	}
	code, err := runChild(args, append(env.Environ(os.Environ()), "FENCEPOST_URL="+way.api), stdout, stderr)
	if way.server == nil {
		return code, err
	}
	// The child is over; what it left under way is finished before the report.
	hurry := make(chan os.Signal, 1)
	signal.Notify(hurry, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(hurry)
	if n := way.server.proxy.InFlight(); n > 0 {
		fmt.Fprintf(stderr, "fencepost: waiting up to %v for the answers to %s; a signal (Ctrl-C) gives up, and what is open then is recorded as unknown\n", time.Duration(c.Drain.Timeout), many(n, "request"))
	}
	if serr := way.server.stop(hurry); serr != nil {
		fmt.Fprintf(stderr, "fencepost: %v\n", serr)
	}
	t := way.server.proxy.Tally()
	if !r.quiet || len(t.Unknown) > 0 || len(t.Ungoverned) > 0 || len(t.Untrusting) > 0 {
		report(stderr, t, shownLedger(string(c.Ledger.URL)), r.file == "")
	}
	way.server = nil
	return code, err
}

// load reads the configuration, or makes the one of a run without a file.
func (r *agentRun) load() (*config.Config, error) {
	var c *config.Config
	if r.file != "" {
		var err error
		if c, err = config.Load(r.file); err != nil {
			return nil, fmt.Errorf("the configuration is refused\n%w", err)
		}
		if !c.Egress.On() {
			return nil, fmt.Errorf("%s has no egress section; give egress.listen an address, such as 127.0.0.1:0", r.file)
		}
	} else {
		state, err := stateDir()
		if err != nil {
			return nil, err
		}
		c = config.ForRun(state, rand.Text())
		if _, err := ownAuthority(c.Egress.CA.Dir); err != nil {
			return nil, fmt.Errorf("the authority for intercepted hosts: %w", err)
		}
	}
	if r.ledger != "" {
		u, err := ledgerFlag(r.ledger)
		if err != nil {
			return nil, err
		}
		c.Ledger.URL = config.Secret(u)
	}
	return c, c.Check()
}

// throughway is how a run's command reaches the world.
type throughway struct {
	proxy     *url.URL // with the caller's token, where callers are configured
	authority []byte   // PEM
	api       string
	server    *server // nil where another process serves
	logFile   io.Closer
}

func (w *throughway) close() {
	if w.server != nil {
		_ = w.server.stop(nil)
	}
	if w.logFile != nil {
		w.logFile.Close()
	}
}

// reach starts the proxies of a configuration, or finds them running.
func (r *agentRun) reach(c *config.Config, stderr io.Writer) (*throughway, error) {
	authority, err := os.ReadFile(filepath.Join(c.Egress.CA.Dir, ca.CertFile))
	if err != nil {
		return nil, fmt.Errorf("egress.ca: %w; make an authority with `fencepost ca init`", err)
	}
	w := &throughway{authority: authority}
	if who, api := runs(c.Egress.Listen); who != "" {
		switch who {
		case "run":
			return nil, fmt.Errorf("another `fencepost run` has %s; its proxy ends with its command. For several commands at once, serve one egress proxy (fencepost serve --config F), which each run then uses", c.Egress.Listen)
		case c.Digest():
		default:
			return nil, fmt.Errorf("the egress proxy at %s runs by another configuration than this one: stop it, restart it, or give egress.listen another port", c.Egress.Listen)
		}
		w.proxy, w.api = proxyURL(c.Egress.Listen), apiURL(c, api)
		fmt.Fprintf(stderr, "fencepost: using the egress proxy that runs at %s; it keeps the records and the log\n", c.Egress.Listen)
		return w, w.identify(c)
	}
	freePorts(c)
	log, file, err := r.logger(c, stderr)
	if err != nil {
		return nil, err
	}
	if file != nil {
		w.logFile = file
	}
	if w.server, err = startServerFor(c, log, true); err != nil {
		w.close()
		return nil, explainBusy(err)
	}
	w.proxy, w.api = proxyURL(w.server.bound.egress.Addr().String()), apiURL(c, w.server.bound.main.Addr().String())
	if err := w.identify(c); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// identify puts the caller's token into the proxy's URL.
func (w *throughway) identify(c *config.Config) error {
	if len(c.Callers) == 0 {
		return nil
	}
	token := os.Getenv("FENCEPOST_TOKEN")
	if token == "" {
		return errors.New("the configuration has callers: put the token of the one that the command runs as into FENCEPOST_TOKEN")
	}
	callers, err := c.PolicyCallers()
	if err != nil {
		return err
	}
	if _, known := callers.Identify(token); !known {
		return errors.New("FENCEPOST_TOKEN is not the token of a caller in the configuration")
	}
	w.proxy.User = url.UserPassword("fencepost", token)
	return nil
}

func proxyURL(addr string) *url.URL { return &url.URL{Scheme: "http", Host: addr} }

func apiURL(c *config.Config, addr string) string {
	if c.TLS.Cert != "" {
		return "https://" + addr
	}
	return "http://" + addr
}

// freePorts lets a run listen on any free port where the file names none: the usual
// ones are for serve.
func freePorts(c *config.Config) {
	usual := config.Default()
	if c.Listen == usual.Listen {
		c.Listen = "127.0.0.1:0"
	}
	if c.Admin.Listen == usual.Admin.Listen {
		c.Admin.Listen = "127.0.0.1:0"
	}
}

// runs reports whether a Fencepost egress proxy answers at an address, and which one
// it says it is and where its API is; "" for none. What the command trusts is not
// taken from it.
func runs(addr string) (identity, api string) {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+proxy.EgressPath, nil)
	if err != nil {
		return "", ""
	}
	resp, err := (&http.Transport{Proxy: nil, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "", ""
	}
	defer resp.Body.Close()
	var said struct{ Identity, API string }
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, 4096)).Decode(&said) != nil {
		return "", ""
	}
	return said.Identity, said.API
}

// explainBusy says what to do where another run has the ledger.
func explainBusy(err error) error {
	if errors.Is(err, sqlitestore.ErrInUse) {
		return fmt.Errorf("%w\nAnother fencepost has this ledger. To run several commands at once, serve one egress proxy (fencepost serve --config F) and use it by `fencepost run --config F`, or give this run a ledger of its own with --ledger", err)
	}
	return err
}

// logger is where the proxy's log goes.
func (r *agentRun) logger(c *config.Config, stderr io.Writer) (*slog.Logger, io.Closer, error) {
	if r.log == "" {
		quiet := *c
		quiet.Log = config.Log{Level: "error", Format: "text"}
		return newLogger(&quiet, stderr), nil, nil
	}
	f, err := os.OpenFile(r.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("--log: %w", err)
	}
	loud := *c
	loud.Log = config.Log{Level: "info", Format: "json"}
	return newLogger(&loud, f), f, nil
}

// shownLedger is a ledger's URL as an argument: with the whole path, since the next
// command may be given elsewhere, and without a password.
func shownLedger(s string) string {
	if config.HoldsPassword(s) {
		return "URL"
	}
	if file, ok := strings.CutPrefix(s, "sqlite://"); ok && file != "" && !filepath.IsAbs(file) {
		if abs, err := filepath.Abs(file); err == nil {
			s = "sqlite://" + abs
		}
	}
	return quote(s)
}

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fencepost/cmd/fencepost/internal/clientenv"
	"fencepost/proxy/ca"
)

const caUsage = `fencepost ca keeps the authority that signs for hosts whose HTTPS is intercepted.

  init   makes it: [--permit-domain D]… [--lifetime 8760h]
  show   says what it is, what it may sign for and how long it lasts: [--json]
  env    prints the variables by which clients use the proxy and trust the authority:
         [--proxy URL] [--docker | --kubernetes] [--files DIR]

Every subcommand takes --dir DIR, the authority's folder (default: ./ca).
`

// caCommand runs one subcommand of ca.
func caCommand(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		fmt.Fprint(stderr, caUsage)
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	sub := map[string]func(*caCall) error{"init": caInit, "show": caShow, "env": caEnv}[args[0]]
	if sub == nil {
		fmt.Fprintf(stderr, "fencepost ca: there is no subcommand %q\n\n%s", args[0], caUsage)
		return exitUsage
	}
	c := &caCall{stdout: stdout, stderr: stderr}
	fs := flag.NewFlagSet("ca "+args[0], flag.ContinueOnError)
	c.register(fs, args[0])
	if code, done := parse(fs, args[1:], stderr); done {
		return code
	}
	if c.docker && c.kubernetes {
		fmt.Fprintln(stderr, "fencepost ca env: give --docker or --kubernetes, not both")
		return exitUsage
	}
	if err := sub(c); err != nil {
		return fail(stderr, "ca "+args[0], err)
	}
	return exitOK
}

// caCall is one call of a subcommand.
type caCall struct {
	stdout, stderr io.Writer

	dir string

	permit   repeated
	lifetime time.Duration

	json bool

	proxy, files       string
	docker, kubernetes bool
}

// repeated is a flag that may be given several times.
type repeated []string

// String is for package flag.
func (r *repeated) String() string { return strings.Join(*r, ", ") }

// Set is for package flag.
func (r *repeated) Set(v string) error { *r = append(*r, v); return nil }

func (c *caCall) register(fs *flag.FlagSet, sub string) {
	fs.StringVar(&c.dir, "dir", "", "the authority's `folder` (default ./ca)")
	switch sub {
	case "init":
		fs.Var(&c.permit, "permit-domain", "let it sign for this `domain` and what is below it only; may be repeated")
		fs.DurationVar(&c.lifetime, "lifetime", ca.DefaultLifetime, "how `long` it lasts")
	case "show":
		fs.BoolVar(&c.json, "json", false, "print JSON")
	case "env":
		fs.StringVar(&c.proxy, "proxy", "", "`URL` of the egress proxy; ${NAME} in it is read from the environment (default: print what is for trust only)")
		fs.BoolVar(&c.docker, "docker", false, "print a file for docker run --env-file, and the mount that goes with it")
		fs.BoolVar(&c.kubernetes, "kubernetes", false, "print env, volumeMounts and volumes of a pod")
		fs.StringVar(&c.files, "files", "", "write the files that the variables name into this `folder` (default: trust, or for containers trust-mount, in the authority's)")
	}
}

// folder is the authority's.
func (c *caCall) folder() string {
	if c.dir != "" {
		return c.dir
	}
	return "ca"
}

func caInit(c *caCall) error {
	info, err := ca.Init(c.folder(), ca.Options{PermitDomains: c.permit, Lifetime: c.lifetime})
	if err != nil {
		return err
	}
	describeAuthority(c.stdout, *info, nil, time.Now())
	fmt.Fprintf(c.stderr, "made; keep %s secret, and give clients the certificate: fencepost ca env --dir %s\n", info.KeyFile, c.folder())
	return nil
}

func caEnv(c *caCall) error {
	info, certificate, _, err := ca.Describe(c.folder())
	if err != nil {
		return err
	}
	now := time.Now()
	if now.After(info.NotAfter) {
		return fmt.Errorf("the authority in %s expired on %s: no client will accept it; make a new one with `fencepost ca init`", c.folder(), info.NotAfter.UTC().Format(time.RFC3339))
	}
	s := clientenv.Settings{CA: certificate}
	if s.Proxy, err = secretFlag("--proxy", c.proxy, "a token", "http://caller:${NAME}@host:port"); err != nil {
		return err
	}
	files := c.files
	container := c.docker || c.kubernetes
	if files == "" {
		files = filepath.Join(c.folder(), "trust")
		if container {
			files += "-mount" // not the same: paths in them are those of the container
		}
	}
	if container {
		s.Seen = "/etc/fencepost"
	} else {
		s.Base = os.Environ()
	}
	env, err := clientenv.Prepare(files, s)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; name a folder of your own with --files", err)
	} else if err != nil {
		return err
	}
	switch {
	case c.docker:
		fmt.Fprint(c.stdout, env.Docker())
	case c.kubernetes:
		fmt.Fprint(c.stdout, env.Kubernetes())
	default:
		fmt.Fprint(c.stdout, env.Shell())
	}
	warnings := env.Warnings
	if info.NearExpiry(now) {
		warnings = append(warnings, fmt.Sprintf("the authority expires in %s", daysLeft(info.NotAfter, now)))
	}
	if s.Proxy == "" {
		warnings = append(warnings, "no --proxy is given: these variables make clients trust the authority, and do not send them to the proxy")
	} else if container && isLoopback(s.Proxy) {
		warnings = append(warnings, "the proxy's address is this machine's own; a container that asks for it asks itself. Give one that containers reach")
	}
	for _, w := range warnings {
		fmt.Fprintf(c.stderr, "fencepost ca env: warning: %s\n", w)
	}
	return nil
}

func isLoopback(proxy string) bool {
	u, err := url.Parse(proxy)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

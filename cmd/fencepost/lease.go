package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const leaseUsage = `fencepost lease keeps the lease of a run, through a running proxy.

  acquire RUN --owner W [--ttl 30s]   prints the token on standard output
  renew   RUN --token N [--ttl 30s]
  release RUN --token N
  show    RUN

Send the token with each request: Fencepost-Lease: "RUN";token=N
Every subcommand takes --url URL (default: FENCEPOST_URL, else
http://127.0.0.1:8080) and --json. The caller's token is read from FENCEPOST_TOKEN.
`

// leaseCommand runs one subcommand of lease.
func leaseCommand(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		fmt.Fprint(stderr, leaseUsage)
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	methods := map[string]string{"acquire": "POST", "renew": "PUT", "release": "DELETE", "show": "GET"}
	method, ok := methods[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "fencepost lease: there is no subcommand %q\n\n%s", args[0], leaseUsage)
		return exitUsage
	}
	fs := flag.NewFlagSet("lease "+args[0], flag.ContinueOnError)
	base := os.Getenv("FENCEPOST_URL")
	if base == "" {
		base = "http://127.0.0.1:8080"
	}
	fs.StringVar(&base, "url", base, "`URL` of the proxy")
	asJSON := fs.Bool("json", false, "print JSON")
	owner := fs.String("owner", "", "who holds the lease (acquire)")
	token := fs.Uint64("token", 0, "the token of the lease (renew, release)")
	ttl := fs.Duration("ttl", 30*time.Second, "how long it lasts (acquire, renew)")
	run := ""
	if code, done := parseWith(fs, args[1:], stderr, &run); done {
		return code
	}
	if run == "" {
		fmt.Fprintf(stderr, "fencepost lease %s: name the run\n", args[0])
		return exitUsage
	}
	path := strings.TrimSuffix(base, "/") + "/_fencepost/v1/leases/" + url.PathEscape(run)
	var body any
	switch args[0] {
	case "acquire":
		if *owner == "" {
			return fail(stderr, "lease acquire", errors.New("--owner is required"))
		}
		body = map[string]string{"owner": *owner, "ttl": ttl.String()}
	case "renew":
		body = map[string]any{"token": *token, "ttl": ttl.String()}
	case "release":
		path += "?token=" + strconv.FormatUint(*token, 10)
	}
	_, answer, err := callAPI(method, path, "Fencepost-Authorization", os.Getenv("FENCEPOST_TOKEN"), body)
	if err != nil {
		return fail(stderr, "lease "+args[0], err)
	}
	switch {
	case args[0] == "release":
		fmt.Fprintln(stderr, "released")
	case *asJSON:
		stdout.Write(answer)
	default:
		var l struct {
			Run, Owner string
			Token      uint64
			Held       bool
			ExpiresAt  string `json:"expires_at"`
		}
		if err := json.Unmarshal(answer, &l); err != nil {
			return fail(stderr, "lease "+args[0], err)
		}
		if args[0] == "acquire" {
			// The token alone on standard output, so that a script can take it.
			fmt.Fprintln(stdout, l.Token)
		}
		held := "held by " + l.Owner + " until " + l.ExpiresAt
		if !l.Held {
			held = "not held"
		}
		fmt.Fprintf(stderr, "run %s, token %d, %s\n", l.Run, l.Token, held)
	}
	return exitOK
}

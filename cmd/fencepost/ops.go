package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"fencepost/cmd/fencepost/internal/config"
	"fencepost/keystore/sqlitestore"
)

// opsUsage lists the subcommands of ops.
const opsUsage = `fencepost ops works on the operations of a running proxy, through its admin listener.

  list                     what is not settled, oldest first
                           [--state S] [--scope S] [--route R] [--older-than D] [--limit N] [--cursor C]
  show KEY                 everything known about one operation
  response KEY             its recorded response, on standard output
  reconcile KEY            asks the provider now, where the route says how
  resolve KEY --as completed|not_applied|abandoned --reason R
                           [--response FILE [--status N] [--content-type T]] [--actor A] [--attempt N]

KEY is in scope "default" unless --scope says otherwise. Every subcommand takes
--admin URL (or --config FILE) and --json. The admin token is read from
FENCEPOST_ADMIN_TOKEN, or from the configuration. Where no proxy runs (after
fencepost run, for instance), --ledger URL opens the ledger itself.
`

// ops runs one of the operator's subcommands.
func ops(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		fmt.Fprint(stderr, opsUsage)
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	sub := map[string]func(*opsCall) error{"list": opsList, "show": opsShow, "response": opsResponse, "reconcile": opsReconcile, "resolve": opsResolve}[args[0]]
	if sub == nil {
		fmt.Fprintf(stderr, "fencepost ops: there is no subcommand %q\n\n%s", args[0], opsUsage)
		return exitUsage
	}
	c := &opsCall{stdout: stdout, stderr: stderr}
	fs := flag.NewFlagSet("ops "+args[0], flag.ContinueOnError)
	c.register(fs, args[0])
	if code, done := parseWith(fs, args[1:], stderr, &c.key); done {
		return code
	}
	fs.Visit(func(f *flag.Flag) {
		c.statusGiven = c.statusGiven || f.Name == "status"
		c.contentTypeGiven = c.contentTypeGiven || f.Name == "content-type"
	})
	if args[0] == "list" && c.key != "" {
		fmt.Fprintln(stderr, "fencepost ops list: one argument too many; a list is narrowed by flags")
		return exitUsage
	}
	if args[0] != "list" && c.key == "" {
		fmt.Fprintf(stderr, "fencepost ops %s: name the key of the operation\n", args[0])
		return exitUsage
	}
	err := c.connect()
	if err == nil {
		err = sub(c)
	}
	if c.stop != nil {
		c.stop()
	}
	if err != nil {
		return fail(stderr, "ops "+args[0], err)
	}
	return exitOK
}

// opsCall is one call of the admin API.
type opsCall struct {
	stdout, stderr io.Writer

	admin, config, scope, key string
	json                      bool

	state, route, cursor string
	older                time.Duration
	limit                int

	as, reason, actor, response, contentType string
	status                                   int

	statusGiven, contentTypeGiven bool
	attempt                       int

	token string
	// ledger is opened by this process itself, which stop undoes.
	ledger string
	stop   func()
}

func (c *opsCall) register(fs *flag.FlagSet, sub string) {
	fs.StringVar(&c.admin, "admin", "", "`URL` of the admin listener (default: the configuration's, else http://127.0.0.1:8081)")
	fs.StringVar(&c.config, "config", "", "configuration `file` of the proxy, for its admin listener and token")
	fs.StringVar(&c.ledger, "ledger", "", "open this ledger `URL` itself, where no proxy runs on it (such as after fencepost run)")
	fs.BoolVar(&c.json, "json", false, "print JSON")
	switch sub {
	case "list":
		fs.StringVar(&c.scope, "scope", "", "only this `scope`")
		fs.StringVar(&c.state, "state", "unknown", "the `state` that operations read")
		fs.StringVar(&c.route, "route", "", "only this `route`")
		fs.DurationVar(&c.older, "older-than", 0, "only what has not changed for this `long`")
		fs.IntVar(&c.limit, "limit", 50, "how many at the most")
		fs.StringVar(&c.cursor, "cursor", "", "continue after an earlier page")
	default:
		fs.StringVar(&c.scope, "scope", "default", "the `scope` (the caller's name) the key belongs to")
	}
	if sub == "resolve" {
		fs.StringVar(&c.as, "as", "", "completed, not_applied (one more send is allowed) or abandoned (never to be sent)")
		fs.StringVar(&c.reason, "reason", "", "why, for the history; required")
		fs.IntVar(&c.attempt, "attempt", 0, "the `number` of the attempt that was looked into (ops show tells it); refused where another was made since")
		fs.StringVar(&c.actor, "actor", "", "who decides, for the history (default: your user name)")
		fs.StringVar(&c.response, "response", "", "with --as completed: `file` with the response that duplicates get, either a whole HTTP/1.1 response or just its body")
		fs.IntVar(&c.status, "status", 200, "status of that response, where the file is just a body")
		fs.StringVar(&c.contentType, "content-type", "application/json", "its media type, likewise")
	}
}

// connect finds the admin listener and its token.
func (c *opsCall) connect() error {
	if c.ledger != "" {
		if c.admin != "" {
			return errors.New("give --admin to ask a running proxy, or --ledger to open a ledger that none runs on")
		}
		return c.open()
	}
	c.token = os.Getenv("FENCEPOST_ADMIN_TOKEN")
	if c.config != "" {
		conf, err := config.LoadAdmin(c.config)
		if err != nil {
			return err
		}
		if c.admin == "" {
			c.admin = "http://" + conf.Listen
		}
		if c.token == "" {
			c.token = string(conf.Token)
		}
	}
	if c.admin == "" {
		c.admin = "http://127.0.0.1:8081"
	}
	if u, err := url.Parse(c.admin); err != nil || u.Host == "" {
		return fmt.Errorf("--admin %q is not a URL; write it like http://127.0.0.1:8081", c.admin)
	}
	c.admin = strings.TrimSuffix(c.admin, "/")
	return nil
}

// open serves the admin API over a ledger that no proxy runs on, for as long as the
// command takes.
func (c *opsCall) open() error {
	conf := config.Default()
	if c.config != "" {
		var err error
		if conf, err = config.Load(c.config); err != nil {
			return err
		}
	}
	u, err := ledgerFlag(c.ledger)
	if err != nil {
		return err
	}
	conf.Ledger.URL = config.Secret(u)
	conf.Listen, conf.Admin.Listen, conf.Egress.Listen = "127.0.0.1:0", "127.0.0.1:0", ""
	c.token = rand.Text()
	conf.Admin.Token = config.Secret(c.token)
	if err := existing(u); err != nil {
		return err
	}
	s, err := startServer(conf, slog.New(slog.DiscardHandler))
	if errors.Is(err, sqlitestore.ErrInUse) {
		return fmt.Errorf("%w. Leave --ledger out to ask the proxy that runs on it", err)
	}
	if err != nil {
		return err
	}
	c.admin = "http://" + s.bound.admin.Addr().String()
	c.stop = func() { _ = s.stop(nil) }
	return nil
}

// existing keeps a mistyped name from becoming a new, empty ledger.
func existing(ledger string) error {
	file, ok := strings.CutPrefix(ledger, "sqlite://")
	if !ok {
		return nil
	}
	if file, _, _ = strings.Cut(file, "?"); file != "" {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("--ledger: %w", err)
		}
	}
	return nil
}

func (c *opsCall) path() string {
	return "/v1/operations/" + url.PathEscape(c.scope) + "/" + url.PathEscape(c.key)
}

// call makes one call of the admin API.
func (c *opsCall) call(method, path string, body any) (*http.Response, []byte, error) {
	resp, b, err := callAPI(method, c.admin+path, "Authorization", c.token, body)
	if err != nil && c.json {
		c.stdout.Write(b)
	}
	return resp, b, err
}

func opsList(c *opsCall) error {
	q := url.Values{"state": {c.state}, "limit": {fmt.Sprint(c.limit)}}
	for name, v := range map[string]string{"scope": c.scope, "route": c.route, "cursor": c.cursor} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if c.older > 0 {
		q.Set("older_than", c.older.String())
	}
	_, body, err := c.call("GET", "/v1/operations?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	if c.json {
		_, err = c.stdout.Write(body)
		return err
	}
	var page struct {
		Operations []operation
		Next       string
		Now        time.Time
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return err
	}
	if len(page.Operations) == 0 {
		fmt.Fprintf(c.stdout, "No operation reads %s.\n", c.state)
		return nil
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tSCOPE\tROUTE\tREQUEST\tATTEMPT\tSINCE\tWHY")
	for _, o := range page.Operations {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s ago\t%s\n", o.Key, o.Scope, o.Route, o.request(), o.Attempt, page.Now.Sub(o.UpdatedAt).Round(time.Second), o.why())
	}
	w.Flush()
	if page.Next != "" {
		fmt.Fprintf(c.stdout, "There are more: --cursor %s\n", page.Next)
	}
	return nil
}

func opsShow(c *opsCall) error {
	_, body, err := c.call("GET", c.path(), nil)
	if err != nil {
		return err
	}
	return c.print(body)
}

// print shows one operation, as JSON or for people.
func (c *opsCall) print(body []byte) error {
	if c.json {
		_, err := c.stdout.Write(body)
		return err
	}
	var o operation
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	o.describe(c.stdout)
	return nil
}

func opsResponse(c *opsCall) error {
	resp, body, err := c.call("GET", c.path()+"/response", nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stderr, "status %d, %s, %d bytes\n", resp.StatusCode, resp.Header.Get("Content-Type"), len(body))
	_, err = c.stdout.Write(body)
	return err
}

func opsReconcile(c *opsCall) error {
	_, body, err := c.call("POST", c.path()+"/reconcile", nil)
	if err != nil {
		return err
	}
	if c.json {
		_, err = c.stdout.Write(body)
		return err
	}
	var r struct {
		Evidence, Why string
		Operation     operation
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "evidence: %s; %s\n", r.Evidence, r.Why)
	r.Operation.describe(c.stdout)
	return nil
}

func opsResolve(c *opsCall) error {
	if c.as == "" {
		return errors.New("say --as completed, --as not_applied or --as abandoned")
	}
	if strings.TrimSpace(c.reason) == "" {
		return errors.New("--reason is required: it explains the decision to whoever reads the history")
	}
	if c.actor == "" {
		if u, err := user.Current(); err == nil {
			c.actor = u.Username
		} else {
			return errors.New("--actor is required: your user name cannot be found out")
		}
	}
	if c.response == "" && (c.statusGiven || c.contentTypeGiven) {
		return errors.New("--status and --content-type are of a response: give it with --response FILE (an empty file is an answer without a body)")
	}
	res := map[string]any{"as": c.as, "reason": c.reason, "actor": c.actor, "attempt": c.attempt}
	if c.response != "" {
		if err := c.readResponse(res); err != nil {
			return err
		}
	}
	_, body, err := c.call("POST", c.path()+"/resolve", res)
	if err != nil {
		return err
	}
	return c.print(body)
}

// readResponse puts the file's response into a resolution.
func (c *opsCall) readResponse(res map[string]any) error {
	b, err := os.ReadFile(c.response)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(b, []byte("HTTP/")) {
		res["status"], res["header"], res["body"] = c.status, map[string]string{"Content-Type": c.contentType}, b
		return nil
	}
	status, header, body, err := parseResponse(b)
	if err != nil {
		return fmt.Errorf("%s begins like an HTTP response but does not read as one: %w", c.response, err)
	}
	res["status"], res["header"], res["body"] = status, header, body
	return nil
}

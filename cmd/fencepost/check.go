package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/sqlitestore"
)

// checkTimeout bounds the whole check of a ledger.
const checkTimeout = 15 * time.Second

// check prints a verdict on configuration and ledger. It exits 0 when a serve
// with the same flags would keep the promise.
func check(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	var s settings
	s.register(fs)
	ack := fs.Bool("acknowledge-rollback", false, "accept a ledger that went back in time: what it lost is lost, and sending may go on")
	noLedger := fs.Bool("no-ledger", false, "look at the configuration only; beside a running proxy with a SQLite ledger nothing else is possible")
	egress := fs.Bool("egress", false, "try which clients of this machine would go through the egress proxy and trust its authority, as run --doctor does, and nothing else")
	if code, done := parse(fs, args, stderr); done {
		return code
	}
	if *egress {
		return runDoctor(nil, stdout, stderr)
	}
	c, err := s.load()
	if err != nil {
		fmt.Fprintf(stdout, "configuration: refused\n%v\n", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "configuration: ok, %d route(s), %d caller(s)\n", len(c.Routes), len(c.Callers))
	if used := profilesOf(c); used != "" {
		fmt.Fprintf(stdout, "profiles: %s\n", used)
	}
	if c.Egress.On() {
		a, err := openAuthority(c, slog.New(slog.DiscardHandler))
		if err != nil {
			fmt.Fprintf(stdout, "authority: refused\n  %v\n", err)
			return exitFailed
		}
		verdict := "ok"
		if a.NearExpiry() {
			verdict = "ends soon"
		}
		fmt.Fprintf(stdout, "authority: %s, until %s\n", verdict, a.NotAfter().UTC().Format(time.RFC3339))
	}
	if *noLedger {
		return exitOK
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	store, err := openLedger(ctx, c, slog.New(slog.DiscardHandler))
	if err != nil {
		if errors.Is(err, sqlitestore.ErrInUse) {
			err = fmt.Errorf("%w. Beside a running proxy, check the file alone with --no-ledger", err)
		}
		fmt.Fprintf(stdout, "ledger: refused\n  %v\n", err)
		return exitFailed
	}
	defer store.Close()
	if *ack {
		if err := acknowledge(ctx, store, stdout); err != nil {
			return fail(stderr, "check", err)
		}
	}
	findings, err := store.Check(ctx)
	for tries := 0; *ack && tries < 20 && err == nil && fatal(findings); tries++ {
		// Proxies that are just spreading the alarm learn of the acknowledgement a
		// moment later.
		time.Sleep(100 * time.Millisecond)
		findings, err = store.Check(ctx)
	}
	if err != nil {
		fmt.Fprintf(stdout, "ledger: not available\n  %v\n", err)
		return exitFailed
	}
	return printFindings(stdout, findings)
}

// acknowledge lets a ledger that went back in time be used again.
func acknowledge(ctx context.Context, store keystore.Store, stdout io.Writer) error {
	a, ok := store.(interface{ AcknowledgeRollback(context.Context) error })
	if !ok {
		return errors.New("this kind of ledger does not detect rollbacks, so there is none to acknowledge")
	}
	if err := a.AcknowledgeRollback(ctx); err != nil {
		return fmt.Errorf("the rollback could not be acknowledged: %w", err)
	}
	fmt.Fprintln(stdout, "rollback: acknowledged. Operations that the ledger lost read as never seen; check with the provider before keys of that time are used again.")
	return nil
}

func fatal(findings []keystore.Finding) bool {
	return slices.ContainsFunc(findings, func(f keystore.Finding) bool { return f.Fatal })
}

func printFindings(w io.Writer, findings []keystore.Finding) int {
	code, verdict := exitOK, "ok"
	if fatal(findings) {
		code, verdict = exitFailed, "refused"
	}
	fmt.Fprintf(w, "ledger: %s\n", verdict)
	for _, f := range findings {
		kind := "warning"
		if f.Fatal {
			kind = "error"
		}
		fmt.Fprintf(w, "  %s: %s\n", kind, f.Message)
	}
	return code
}

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is one subcommand. Its run returns the exit code.
type command struct {
	name  string
	short string
	run   func(args []string, stdout, stderr io.Writer) int
}

func commands() []command {
	return []command{
		{"serve", "run the proxy: [--config F | --upstream URL] [--listen A] [--ledger URL]", serve},
		{"run", "run a command through an egress proxy of its own: [--config F] [--doctor] -- CMD …", runCommand},
		{"check", "verdict on configuration and ledger, for CI: [--config F | --upstream URL] [--ledger URL]", check},
		{"ops", "list, show and settle operations of a running proxy: list | show KEY | response KEY | reconcile KEY | resolve KEY", ops},
		{"lease", "keep the lease of a run: acquire | renew | release | show RUN", leaseCommand},
		{"profile", "list the provider profiles that a route can name, or print one: [NAME]", profile},
		{"ca", "keep the authority that signs for intercepted hosts: init | show | env", caCommand},
		{"version", "print the version", version},
	}
}

// run dispatches to a subcommand.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	name := args[0]
	if slices.Contains([]string{"help", "-h", "--help"}, name) {
		usage(stdout)
		return exitOK
	}
	if name == "--version" {
		name = "version"
	}
	if name == probeCommand {
		return probe(args[1:], stdout, stderr)
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(args[1:], stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "fencepost: there is no command %q\n\n", name)
	usage(stderr)
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "fencepost sends each outbound mutation at most once, and knows what became of it.\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-8s %s\n", c.name, c.short)
	}
	fmt.Fprint(w, "\n`fencepost COMMAND -h` shows a command's flags.\n")
}

// parse reads flags that take no further arguments. done is true when there is
// nothing left to run; code is then the exit code.
func parse(fs *flag.FlagSet, args []string, stderr io.Writer) (code int, done bool) {
	fs.SetOutput(stderr)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK, true
	case err != nil:
		return exitUsage, true
	}
	if fs.NArg() > 0 {
		// Not repeated: it may be a URL with a password.
		fmt.Fprintf(stderr, "fencepost %s: unexpected argument after the flags (all values are flags)\n", fs.Name())
		return exitUsage, true
	}
	return exitOK, false
}

// parseWith reads flags with one argument that may stand anywhere among them.
func parseWith(fs *flag.FlagSet, args []string, stderr io.Writer, argument *string) (code int, done bool) {
	fs.SetOutput(stderr)
	for len(args) > 0 {
		switch err := fs.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			return exitOK, true
		case err != nil:
			return exitUsage, true
		}
		args = fs.Args()
		if len(args) == 0 {
			break
		}
		if *argument != "" {
			fmt.Fprintf(stderr, "fencepost %s: one argument too many\n", fs.Name())
			return exitUsage, true
		}
		*argument, args = args[0], args[1:]
	}
	return exitOK, false
}

// fail prints an error the way every command does.
func fail(stderr io.Writer, command string, err error) int {
	fmt.Fprintf(stderr, "fencepost %s: %v\n", command, err)
	return exitFailed
}

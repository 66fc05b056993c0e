package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"fencepost/cmd/fencepost/internal/config"
)

// profile lists the profiles, or prints one as it could stand in a route.
func profile(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("profile", flag.ContinueOnError)
	var name string
	if code, done := parseWith(fs, args, stderr, &name); done {
		return code
	}
	if name == "" {
		fmt.Fprintln(stdout, strings.Join(config.ProfileNames(), "\n"))
		return exitOK
	}
	text, ok := config.ProfileText(name)
	if !ok {
		fmt.Fprintf(stderr, "fencepost profile: there is no profile %q; known are %s\n", name, strings.Join(config.ProfileNames(), ", "))
		return exitUsage
	}
	fmt.Fprint(stdout, text)
	return exitOK
}

// profilesOf says which routes start from which profile; "" is none.
func profilesOf(c *config.Config) string {
	var out []string
	for i := range c.Routes {
		if r := &c.Routes[i]; r.Profile != "" {
			out = append(out, r.Name+" ("+r.Profile+")")
		}
	}
	return strings.Join(out, ", ")
}

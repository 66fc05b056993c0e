// Command fencepost is an HTTP proxy that enforces idempotency where side
// effects leave the process. `fencepost help` lists its commands.
package main

import (
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Package failpoint names the places in the exchange where a crash leaves
// something different behind, so that tests can kill the process there.
//
// In the product [Hit] is an empty function. Built with the tag failpoint it
// reads FENCEPOST_FAILPOINT, a comma-separated list of name=action[@n]: at the
// n-th hit (the first without @n) of a name, "kill" sends the process SIGKILL,
// "stop" SIGSTOP, and "panic" panics.
package failpoint

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit codes of a command that could not be started, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the signal's number
)

// forwarded are the signals that a child gets as if they had been sent to it.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// runChild runs a command with this process's standard streams until it ends, and
// returns its exit code. Signals that come meanwhile are passed on.
func runChild(args, env []string, stdout, stderr io.Writer) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, stdout, stderr

	// From before the start: a signal in between must end the child, not only us.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)

	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return exitNotFound, err
		}
		return exitNotExecutable, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if fromTerminal(s) {
				continue // the terminal gave it to the child as well
			}
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			return exitCode(cmd.ProcessState, err)
		}
	}
}

// exitCode is the code to end with after a child has ended.
func exitCode(state *os.ProcessState, err error) (int, error) {
	if state == nil {
		return exitFailed, err
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return exitSignal + int(ws.Signal()), nil
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		// It ended by itself; something of its output was not passed on.
		return max(state.ExitCode(), exitFailed), err
	}
	return state.ExitCode(), nil
}

// fromTerminal reports whether a signal is one that the terminal sends to every
// process in the foreground, of which the child is one.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

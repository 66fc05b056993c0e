package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// beOffline makes this test program turn on the loopback interface of a network
// that it was started in, and become the command of its arguments.
const beOffline = "be-offline"

func init() {
	if len(os.Args) < 3 || os.Args[1] != beOffline {
		return
	}
	err := loopbackUp()
	if err == nil && os.Args[2] != "" {
		err = syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, beOffline, err)
		os.Exit(125)
	}
	os.Exit(0)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// offline is a command on a machine without any network but its own loopback.
func offline(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], append([]string{beOffline}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		return cmd
	}
	if out, err := inside("").CombinedOutput(); err != nil {
		t.Skipf("no network of its own can be made for this test here: %v: %s", err, out)
	}
	return inside(append([]string{program}, args...)...)
}

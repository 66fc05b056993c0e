//go:build unix

package upstream

import (
	"errors"
	"syscall"
)

// TLS record types as they stand on the wire (RFC 8446, section 5.1).
const recordAlert = 0x15

// spoilt looks at the socket, without waiting and without taking anything, just
// before the first byte of a request is written. The peer's end, an error, or
// bytes that no request asked for mean that the answer could not be trusted, and
// now is the last moment at which nothing was sent.
//
// Under TLS bytes may be waiting that mean no harm (a session ticket); only an
// alert, which closes, counts there.
func (t *tally) spoilt(plain bool) bool {
	sc, ok := t.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var b [1]byte
	var n int
	var rerr error
	// Control, not Read: net/http's read loop holds the right to read.
	if err := rc.Control(func(fd uintptr) {
		n, _, rerr = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}); err != nil {
		return true
	}
	switch {
	case errors.Is(rerr, syscall.EAGAIN), errors.Is(rerr, syscall.EINTR):
		return false
	case rerr != nil, n == 0:
		return true
	}
	return plain || b[0] == recordAlert
}

package proxy

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// carry copies from one side of a tunnel to the other, until from ends or nothing
// went through for idle; last is when something did, in either direction.
//
// A tunnel that rests holds two connections and nothing else. (io.Copy between two
// sockets would hold a pipe in each direction all the time: four files more.)
//
// filter, if not nil, gives what to pass on of what has come, or ends the tunnel. The
// error says why it ended; nil is one direction's end.
func (p *Proxy) carry(to, from net.Conn, idle time.Duration, last *atomic.Int64, filter func([]byte) ([]byte, error)) error {
	for {
		_ = from.SetReadDeadline(time.Now().Add(idle))
		err := readable(from)
		if err == nil {
			err = p.pour(to, from, idle, last, filter)
		}
		if err == nil {
			continue
		}
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() && time.Since(time.Unix(0, last.Load())) < idle {
			continue // the other direction is busy
		}
		if err == io.EOF {
			if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return nil
			}
		}
		// Both ends: the other direction must not wait for a side that is gone.
		to.Close()
		from.Close()
		return err
	}
}

// errStuck says that one side of a tunnel takes nothing more.
var errStuck = errors.New("the other side of the tunnel takes nothing more")

// pour passes on what is there to be read.
//
// The write has a limit of its own: a side that takes nothing more may have ended
// its own direction, so that nothing else would ever notice.
func (p *Proxy) pour(to, from net.Conn, idle time.Duration, last *atomic.Int64, filter func([]byte) ([]byte, error)) error {
	buf := p.buffers.Get()
	defer p.buffers.Put(buf)
	n, err := from.Read(buf)
	if n > 0 {
		last.Store(time.Now().UnixNano())
		out := buf[:n]
		if filter != nil {
			var ferr error
			if out, ferr = filter(out); ferr != nil {
				return ferr
			}
		}
		_ = to.SetWriteDeadline(time.Now().Add(idle))
		if _, werr := to.Write(out); werr != nil {
			return errStuck
		}
	}
	return err
}

// readable waits until there is something to be read, or the end, or the read
// deadline, without a buffer to read it into. Of a connection that is no socket it
// says so at once, and the read waits.
func readable(c net.Conn) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN && err != unix.EINTR
	})
}

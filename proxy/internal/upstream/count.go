package upstream

import (
	"net"
	"sync/atomic"
)

// tally is the socket, with a count of the bytes that were written to it. It is
// below TLS: what it has not counted has not left the process.
type tally struct {
	net.Conn
	out atomic.Int64
}

func (t *tally) Write(p []byte) (int, error) {
	n, err := t.Conn.Write(p)
	if n > 0 {
		t.out.Add(int64(n))
	}
	return n, err
}

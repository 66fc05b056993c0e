package upstream

import (
	"context"
	"errors"
	"net"
)

// A SendError is the failure of Conn.RoundTrip.
type SendError struct {
	// NotSent says that it is proved that the peer has not processed the request
	// and never will: no byte of it has left, or, with HTTP/2, the peer said so.
	// False means doubt: the peer may have processed it.
	NotSent bool

	// Timeout says that time ran out: the request's deadline, or a network timeout.
	Timeout bool

	// Err is the error of net/http. Only for people: nothing may be decided from it.
	Err error
}

func (e *SendError) Error() string {
	if e.NotSent {
		return "nothing was sent: " + e.Err.Error()
	}
	return "the outcome is unknown: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *SendError) Unwrap() error { return e.Err }

// A Phase is the step at which Connect failed.
type Phase string

// The phases of Connect, in order.
const (
	PhaseWait  Phase = "wait"  // waiting for a connection, or the pool was closed
	PhaseDNS   Phase = "dns"   // resolving the host's name
	PhaseDial  Phase = "dial"  // opening the TCP connection
	PhaseTLS   Phase = "tls"   // the TLS handshake, the certificate included
	PhaseSetup Phase = "setup" // a bad address, or the peer closed a new connection at once
)

// A ConnectError is the failure of Connect. Nothing was sent.
type ConnectError struct {
	Phase   Phase
	Timeout bool   // time ran out in this phase
	Host    string // as given to Connect
	Err     error
}

func (e *ConnectError) Error() string {
	return "connect to " + e.Host + ": " + string(e.Phase) + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *ConnectError) Unwrap() error { return e.Err }

func connectError(ctx context.Context, key hostKey, phase Phase, err error) *ConnectError {
	return &ConnectError{Phase: phase, Timeout: isTimeout(ctx, err), Host: key.host, Err: err}
}

// isTimeout reports whether err means that time ran out, be it ctx's or another's.
// It only explains; no verdict depends on it.
func isTimeout(ctx context.Context, err error) bool {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return true
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.Cause(ctx))
}

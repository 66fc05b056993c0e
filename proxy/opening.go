package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"fencepost/policy"
)

// errFronted says that TLS in a tunnel asks for a host that is governed.
var errFronted = errors.New("TLS in the tunnel asks for another host, which a route governs")

// errEndless says that a client hides for whom its TLS asks.
var errEndless = errors.New("TLS in the tunnel does not come to its point")

// maxOpening bounds what is held back of a tunnel until its host's name was read.
const maxOpening = 64 << 10

// opening looks at how a client begins in a tunnel that is not looked into: many
// hosts share an address, and the name that TLS asks for decides who answers. Where a
// route governs that one, the tunnel would lead round the route.
type opening struct {
	rules *loaded
	to    policy.Destination
	held  []byte
	over  bool
}

// pass gives what may be passed on, now that b has come.
func (o *opening) pass(b []byte) ([]byte, error) {
	if o.over {
		return b, nil
	}
	o.held = append(o.held, b...)
	name, whole := serverName(o.held)
	switch {
	case !whole && len(o.held) < maxOpening:
		return nil, nil
	case !whole:
		return nil, errEndless
	}
	o.over = true
	if name != "" && name != o.to.Name {
		if way, _ := o.rules.Egress.Decide(policy.Destination{Name: name, Port: o.to.Port}); way == policy.PassIntercepted {
			return nil, errFronted
		}
	}
	held := o.held
	o.held = nil
	return held, nil
}

// serverName reads the host's name from the beginning of a TLS connection. whole is
// false where more must come first.
func serverName(b []byte) (name string, whole bool) {
	const handshake = 0x16 // RFC 8446, section 5.1
	if b[0] != handshake {
		return "", true
	}
	for rest := b; len(rest) > 0; {
		// It is not read before a record is whole.
		n := 5
		if len(rest) >= n {
			n += int(rest[3])<<8 | int(rest[4])
		}
		if len(rest) < n {
			return "", false
		}
		rest = rest[n:]
	}
	from := &replayed{Reader: *bytes.NewReader(b)}
	heard := false
	_ = tls.Server(from, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		heard, name = true, strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
		return nil, errors.New("that is all")
	}}).Handshake()
	return name, heard || from.Len() > 0
}

// replayed is a connection of which there is only what has come.
type replayed struct{ bytes.Reader }

func (*replayed) Write(b []byte) (int, error)      { return len(b), nil }
func (*replayed) Close() error                     { return nil }
func (*replayed) LocalAddr() net.Addr              { return nil }
func (*replayed) RemoteAddr() net.Addr             { return nil }
func (*replayed) SetDeadline(time.Time) error      { return nil }
func (*replayed) SetReadDeadline(time.Time) error  { return nil }
func (*replayed) SetWriteDeadline(time.Time) error { return nil }

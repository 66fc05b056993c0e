package redisstore

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// faultProxy stands between a store and a server. It lets a chosen script run
// and spoils the reply.
type faultProxy struct {
	addr string

	mu     sync.Mutex
	target string
	evals  int          // scripts seen
	lose   map[int]mode // by number of the script, 0 for every one
	held   chan struct{}
	cut    bool
	conns  map[net.Conn]bool
	// spoiled gets a word for each spoiled reply, after the server gave it.
	spoiled chan struct{}
}

type mode int

const (
	pass mode = iota
	silence
	fin
	rst
	oneByte
	hold // until release
)

var modes = map[string]mode{"silence": silence, "fin": fin, "rst": rst, "one byte": oneByte}

func startProxy(t testing.TB, target string) *faultProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &faultProxy{addr: l.Addr().String(), target: target, lose: map[int]mode{}, conns: map[net.Conn]bool{}, held: make(chan struct{}), spoiled: make(chan struct{}, 1000)}
	t.Cleanup(func() {
		l.Close()
		p.drop()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// arm spoils the nth script from now (1 is the next), or all where n is 0.
func (p *faultProxy) arm(n int, m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 {
		n += p.evals
	}
	p.lose[n] = m
}

func (p *faultProxy) disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = map[int]mode{}
}

// drop closes every connection; sever also takes no bytes any more, and leaves
// what is open hanging.
func (p *faultProxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *faultProxy) sever(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

func (p *faultProxy) severed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

// count takes note of the scripts in b and returns what is to happen to the reply.
func (p *faultProxy) count(b []byte) mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.lose[0]
	for range bytes.Count(b, []byte("evalsha")) {
		p.evals++
		if x, ok := p.lose[p.evals]; ok {
			m = x
		}
	}
	if !bytes.Contains(b, []byte("evalsha")) {
		return pass
	}
	return m
}

func (p *faultProxy) serve(client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	srv, err := net.Dial("tcp", target)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[srv] = true, true
	p.mu.Unlock()
	defer func() {
		client.Close()
		srv.Close()
		p.mu.Lock()
		delete(p.conns, client)
		delete(p.conns, srv)
		p.mu.Unlock()
	}()
	var mu sync.Mutex
	spoil := pass
	go func() {
		defer srv.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := client.Read(b)
			if err != nil {
				return
			}
			if p.severed() {
				continue
			}
			if m := p.count(b[:n]); m != pass {
				mu.Lock()
				spoil = m
				mu.Unlock()
			}
			if _, err := srv.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := srv.Read(b)
		if err != nil {
			return
		}
		mu.Lock()
		m := spoil
		mu.Unlock()
		if p.severed() {
			continue
		}
		if m != pass {
			select {
			case p.spoiled <- struct{}{}:
			default:
			}
		}
		switch m {
		case silence:
			continue
		case fin:
			return
		case rst:
			_ = client.(*net.TCPConn).SetLinger(0)
			return
		case oneByte:
			_, _ = client.Write(b[:1])
			return
		case hold:
			<-p.held
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

package proxy

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"fencepost/policy"
)

// fickle is a resolver whose names lead elsewhere each time they are asked for, and
// that nobody may remember.
type fickle struct {
	conn net.PacketConn

	mu    sync.Mutex
	turns [][]netip.Addr // the answers, in turn
	asked int
}

// resolveBy makes the names of this process be resolved by a fickle resolver, for as
// long as the test takes.
func resolveBy(t *testing.T) *fickle {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f := &fickle{conn: conn}
	go f.serve()
	old := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = old })
	return f
}

func (f *fickle) leads(turns ...[]netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turns, f.asked = turns, 0
}

func (f *fickle) next() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.turns[(f.asked-1)%len(f.turns)]
}

func (f *fickle) serve() {
	b := make([]byte, 1500)
	for {
		n, from, err := f.conn.ReadFrom(b)
		if err != nil {
			return
		}
		var p dnsmessage.Parser
		h, err := p.Start(b[:n])
		if err != nil {
			continue
		}
		q, err := p.Question()
		if err != nil {
			continue
		}
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, Authoritative: true}, Questions: []dnsmessage.Question{q}}
		if q.Type == dnsmessage.TypeA {
			for _, a := range f.next() {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: a.As4()}})
			}
		}
		if out, err := m.Pack(); err == nil {
			_, _ = f.conn.WriteTo(out, from)
		}
	}
}

// TestANameThatChangesItsMindGainsNothing: what is judged is the address that is
// dialled. 127.0.0.2 stands for a place that may be reached, 127.0.0.1 for one that
// may not.
func TestANameThatChangesItsMindGainsNothing(t *testing.T) {
	dns := resolveBy(t)
	good, bad := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
	var reached, trespassed atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("this machine has one loopback address only: %v", err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	forbidden, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	for l, n := range map[net.Listener]*atomic.Int64{l: &reached, forbidden: &trespassed} {
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			w.WriteHeader(http.StatusCreated)
		})}
		s.SetKeepAlivesEnabled(false) // each request resolves anew
		t.Cleanup(func() { s.Close() })
		go s.Serve(l)
	}
	x := leave(t, exitRules{
		routes: []policy.Route{{Name: "governed", Host: "governed.example", Enforce: true}},
		rule:   policy.EgressRule{Allow: []string{"*"}, Ports: []uint16{portOf(l.Addr().String())}},
		cidrs:  []string{"127.0.0.2/32"},
	}, nil, nil, nil)
	c := x.client("HTTP/1.1")
	keys := 0
	ways := map[string]func() int{
		"passed on": func() int { return ask(t, c, "GET", "http://passed.example:"+port+"/", "", "").status },
		"governed": func() int {
			keys++
			return ask(t, c, "POST", "http://governed.example:"+port+"/", "k"+strings.Repeat("x", keys), "x").status
		},
		"tunnelled": func() int {
			status, _ := x.through(t, "tunnelled.example:"+port)
			return status
		},
	}
	only := func(a netip.Addr) []netip.Addr { return []netip.Addr{a} }
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			dns.leads(only(good))
			if status := way(); status != 201 {
				t.Fatalf("a name that leads to what may be reached: %d", status)
			}
			dns.leads(only(bad))
			if status := way(); status != 403 {
				t.Errorf("a name that leads to what may not: %d", status)
			}
			// Whatever is looked up twice would be deceived in half of the cases.
			for _, turns := range [][][]netip.Addr{{only(good), only(bad)}, {only(bad), only(good)}, {only(good), only(good), only(bad)}} {
				dns.leads(turns...)
				for range 6 {
					if status := way(); status != 201 && status != 403 {
						t.Errorf("a name that changes its mind: %d", status)
					}
				}
			}
			dns.leads([]netip.Addr{bad, good}, []netip.Addr{good, bad})
			for range 4 {
				if status := way(); status != 201 {
					t.Errorf("a name that leads to both: %d", status)
				}
			}
		})
	}
	if reached.Load() == 0 || trespassed.Load() != 0 {
		t.Errorf("%d requests where they may go, %d where they may not", reached.Load(), trespassed.Load())
	}
}

package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// relay is the way from a client to Fencepost. It counts what passes, by call: the
// first segment of the path. Where a test asks for it, it loses Fencepost's answers.
type relay struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]*relayed
}

// relayed is what passed under one call.
type relayed struct {
	arrivals int
	headers  []http.Header // of the requests
	statuses []int         // of Fencepost's answers, lost ones too
	key      string        // that Fencepost answered with
	lose     int           // how many answers are to be lost yet
	half     bool          // a lost answer is cut in its body
	// release is what a test has kept to let an answer go that is held.
	release func()
	// told is when Fencepost last asked to come again later, last when a request last
	// came, and hasty whether one came sooner than it was asked to. One that comes as
	// late as after a timeout may be of a client that was not told.
	told, last time.Time
	hasty      bool
	// arrived and answered are called without the lock; each may be nil.
	arrived  func(n int)
	answered func(resp *http.Response)
}

func newRelay(t *testing.T, to string) *relay {
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{calls: map[string]*relayed{}}
	r.Server = httptest.NewServer(&httputil.ReverseProxy{
		Transport:      gatewayTransport,
		FlushInterval:  -1,
		Rewrite:        func(p *httputil.ProxyRequest) { r.arrive(p, target) },
		ModifyResponse: r.answer,
		// Whatever went wrong, the client sees a broken connection and no answer.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	return r
}

// callOf is the call that a request belongs to.
func callOf(r *http.Request) string {
	call, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return call
}

// locked hands out what passes under a call.
func (r *relay) locked(name string, f func(*relayed)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[name]
	if c == nil {
		c = &relayed{}
		r.calls[name] = c
	}
	f(c)
}

// call returns what passed under a call until now.
func (r *relay) call(name string) (c relayed) {
	r.locked(name, func(p *relayed) {
		c = *p
		c.headers, c.statuses = slices.Clone(p.headers), slices.Clone(p.statuses)
	})
	return c
}

// values counts the values that a field had in the requests of a call.
func (c *relayed) values(field string) int {
	seen := map[string]bool{}
	for _, h := range c.headers {
		seen[strings.Join(h.Values(field), "|")] = true
	}
	return len(seen)
}

func (r *relay) arrive(p *httputil.ProxyRequest, to *url.URL) {
	p.SetURL(to)
	p.Out.Host = p.In.Host
	head := p.In.Header.Clone()
	var c relayed
	r.locked(callOf(p.In), func(p *relayed) {
		p.arrivals++
		p.headers = append(p.headers, head)
		if !p.told.IsZero() && time.Since(p.told) < 900*time.Millisecond && time.Since(p.last) < impatient*9/10*time.Millisecond {
			p.hasty = true
		}
		p.last = time.Now()
		c = *p
	})
	if c.arrived != nil {
		c.arrived(c.arrivals)
	}
}

var errLost = errors.New("lost between Fencepost and the client")

func (r *relay) answer(resp *http.Response) error {
	var c relayed
	r.locked(callOf(resp.Request), func(p *relayed) {
		p.statuses = append(p.statuses, resp.StatusCode)
		if k := resp.Header.Get("Idempotency-Key"); k != "" {
			p.key = k
		}
		if resp.Header.Get("Retry-After") == "1" {
			p.told = time.Now()
		}
		c = *p
		p.lose = max(0, p.lose-1)
	})
	if c.answered != nil {
		c.answered(resp)
	}
	if c.lose == 0 {
		return nil
	}
	// Fencepost has given its whole answer: it takes the client for told.
	b, err := io.ReadAll(resp.Body)
	if err != nil || !c.half {
		return errLost
	}
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b[:len(b)/2]), cutReader{}))
	return nil
}

// cutReader is the rest of a body that does not come.
type cutReader struct{}

func (cutReader) Read([]byte) (int, error) { return 0, errLost }

package proxy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"time"
)

// maxInforms is how many informational answers one request passes on.
const maxInforms = 16

// informer passes an upstream's informational answers (RFC 9110, section 15.2) on
// while the final one is awaited. They tell nothing about the outcome, so nothing
// is recorded of them, and a replay has none.
type informer struct {
	w http.ResponseWriter
	// patience is how long the client may keep us waiting to take one.
	patience time.Duration

	mu   sync.Mutex
	told int
	over bool
}

// inform returns the informer of one request. A client of HTTP/1.0 gets no
// informational answers.
func (p *Proxy) inform(w http.ResponseWriter, r *http.Request) *informer {
	return &informer{w: w, patience: p.cfg.BodyTimeout, over: !r.ProtoAtLeast(1, 1)}
}

// trace is ctx with the informer listening.
func (i *informer) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: i.got})
}

func (i *informer) got(status int, h textproto.MIMEHeader) error {
	if status == http.StatusContinue || status == http.StatusSwitchingProtocols {
		// The client's own Expect was answered here; a switch is no information.
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.told++; i.over || i.told > maxInforms {
		return nil
	}
	// A client that reads nothing must not hold the final answer up.
	rc := http.NewResponseController(i.w)
	_ = rc.SetWriteDeadline(time.Now().Add(i.patience))
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	out := i.w.Header()
	for name, values := range h {
		if passesBack(name) {
			out[name] = values
		}
	}
	i.w.WriteHeader(status)
	clear(out)
	return nil
}

// end is called before anything else is written to the client. From then on,
// what still comes is dropped.
func (i *informer) end() {
	i.mu.Lock()
	i.over = true
	i.mu.Unlock()
}

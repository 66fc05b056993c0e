package upstream

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// heed shortens a connection's idle limit to what the peer announced: "Keep-Alive:
// timeout=5, max=100". The margin, a second or half of a shorter time, is for the
// request's way to the peer: one that meets the close ends in doubt.
func (l *link) heed(header http.Header) {
	for _, field := range header["Keep-Alive"] {
		for param := range strings.SplitSeq(field, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
			if !strings.EqualFold(name, "timeout") {
				continue
			}
			if n, err := strconv.ParseUint(value, 10, 16); err == nil {
				announced := time.Duration(n) * time.Second
				l.idleLimit = min(l.pool.opts.IdleTimeout, announced-min(announced/2, time.Second))
			}
		}
	}
}

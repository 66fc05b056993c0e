package proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"
)

// refuse answers a wish to reach what is not allowed. Two tools show nothing of a
// problem document, and people would be left with a bare 403: git prints a body
// only when it is plain text, and npm a field of its own. Nobody else is answered
// in another way than by writeProblem.
func refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	h := w.Header()
	switch tool, _, _ := strings.Cut(r.UserAgent(), "/"); tool {
	case "git":
		body := p.detail + "\n"
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		h.Set("Cache-Control", "no-store")
		h.Set("Proxy-Status", proxyStatus(p.code))
		w.WriteHeader(p.resolved().status)
		_, _ = io.WriteString(w, body)
	case "npm":
		// The detail quotes the host, which is a name or an address in its normal form.
		h.Set("Npm-Notice", p.detail)
		fallthrough
	default:
		writeProblem(w, p)
	}
}

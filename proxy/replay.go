package proxy

import (
	"net/http"
	"strconv"

	"fencepost/keystore"
)

// writeReplay answers a duplicate with what was recorded: the same status, the
// same bytes, the fields that are safe to repeat.
func writeReplay(w http.ResponseWriter, rep *keystore.Reply) {
	h := w.Header()
	tag(h, &rep.Record, rep.Record.State)
	h[headerReplayed] = []string{"true"}
	writeRecorded(w, rep)
}

// openResponse gives a recorded response the form it was received in.
func (p *Proxy) openResponse(rep *keystore.Reply) *problem {
	err := p.ledger.vault.Open(rep)
	if err == nil {
		return nil
	}
	r := &rep.Record
	p.log.Error("a recorded response cannot be read", "operation", r.Operation, "scope", r.Scope, "key", r.Key, "error", err)
	return &problem{code: codeSealed, id: r.ID, record: r, state: r.State.String(), original: r.Outcome.Status,
		detail: "This operation is completed, and its recorded response cannot be read here: " + err.Error() + ". Nothing more was sent. Ask again when the proxy has the key."}
}

// writeRecorded writes a recorded response.
func writeRecorded(w http.ResponseWriter, rep *keystore.Reply) {
	o := rep.Record.Outcome
	h := w.Header()
	for _, f := range o.Header {
		h[f.Name] = append(h[f.Name], f.Value)
	}
	addProxyStatus(h, o.Status)
	for _, f := range o.Trailer {
		h.Add("Trailer", f.Name)
	}
	if len(o.Trailer) == 0 && bodyAllowed(o.Status) {
		h["Content-Length"] = []string{strconv.Itoa(len(rep.Body))}
	}
	if _, ok := h["Content-Type"]; !ok {
		// The upstream sent none; net/http must not guess one.
		h["Content-Type"] = nil
	}
	w.WriteHeader(o.Status)
	if bodyAllowed(o.Status) {
		_, _ = w.Write(rep.Body)
	}
	for _, f := range o.Trailer {
		h.Add(f.Name, f.Value)
	}
}

// bodyAllowed reports whether an answer with this status has a body (RFC 9110,
// section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

package proxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// code names a situation in which Fencepost answers by itself. It is the
// `code` member of the problem and the end of its `type`.
type code string

// Every answer of our own. The table below says what each means on the wire.
const (
	codeKeyRequired       code = "idempotency_key_required"
	codeKeyInvalid        code = "idempotency_key_invalid"
	codeMalformed         code = "request_malformed"
	codeDuplicatePayload  code = "duplicate_payload"
	codeConflict          code = "idempotency_conflict"
	codeInFlight          code = "idempotency_in_flight"
	codeUnknown           code = "outcome_unknown"
	codeAbandoned         code = "operation_abandoned"
	codeUnreachable       code = "upstream_unreachable"
	codeLeaseStale        code = "lease_stale"
	codeLeaseInvalid      code = "lease_invalid"
	codeLeaseRequired     code = "lease_required"
	codeLeaseHeld         code = "lease_held"
	codeNoLease           code = "lease_not_found"
	codeLedgerUnavailable code = "ledger_unavailable"
	codeLedgerRolledBack  code = "ledger_rolled_back"
	codeKeyExpired        code = "idempotency_key_expired"
	codeNotRetained       code = "response_not_retained"
	codeLoop              code = "proxy_loop"
	codeMisdirected       code = "misdirected_request"
	codeBusy              code = "too_many_tunnels"
	codeSealed            code = "response_sealed"
	codeTooLarge          code = "request_too_large"
	codeNoRoute           code = "route_not_found"
	codeForbidden         code = "target_forbidden"
	codeCallerUnknown     code = "caller_unknown"
	codeNoOperation       code = "operation_not_found"
	codeMethodNotAllowed  code = "method_not_allowed"
	codeShuttingDown      code = "shutting_down"
	codeInternal          code = "internal_error"
	codeNotResolvable     code = "not_resolvable"
)

// retry tells an agent what to do with its key.
type retry string

const (
	// retrySameKey: nothing was sent, or asking again is safe; keep the key.
	retrySameKey retry = "same_key"
	// retryNewKey: this request is another one than the key's; use a new key.
	retryNewKey retry = "new_key"
	// retryAfterResolution: do not send again, under any key, before the doubt is
	// settled.
	retryAfterResolution retry = "after_resolution"
	// retryNever: it is over.
	retryNever retry = "never"
)

// situation is a row of the table.
type situation struct {
	status int
	retry  retry
	title  string
	// after is the Retry-After of the answer, zero for none.
	after time.Duration
}

// situations is the one place where a decision becomes an HTTP status.
var situations = map[code]situation{
	codeKeyRequired:       {http.StatusBadRequest, retryNewKey, "An idempotency key is required", 0},
	codeKeyInvalid:        {http.StatusBadRequest, retryNewKey, "The idempotency key is not valid", 0},
	codeMalformed:         {http.StatusBadRequest, retrySameKey, "The request could not be read", 0},
	codeConflict:          {http.StatusUnprocessableEntity, retryNewKey, "The idempotency key belongs to another request", 0},
	codeDuplicatePayload:  {http.StatusConflict, retryAfterResolution, "The same payload was sent under another key", 0},
	codeInFlight:          {http.StatusConflict, retrySameKey, "The operation is still in flight", time.Second},
	codeUnknown:           {http.StatusConflict, retryAfterResolution, "The outcome of the operation is unknown", 0},
	codeAbandoned:         {http.StatusConflict, retryNever, "The operation was abandoned", 0},
	codeUnreachable:       {http.StatusBadGateway, retrySameKey, "The upstream could not be reached; nothing was sent", 0},
	codeLeaseStale:        {http.StatusPreconditionFailed, retryNever, "The lease is stale", 0},
	codeLeaseInvalid:      {http.StatusBadRequest, retrySameKey, "The lease field is not valid", 0},
	codeLeaseRequired:     {http.StatusPreconditionRequired, retrySameKey, "A lease is required", 0},
	codeLeaseHeld:         {http.StatusConflict, retrySameKey, "The lease is held by another", time.Second},
	codeNoLease:           {http.StatusNotFound, retryNever, "No such lease", 0},
	codeLedgerUnavailable: {http.StatusServiceUnavailable, retrySameKey, "The ledger is not available", time.Second},
	codeLedgerRolledBack:  {http.StatusServiceUnavailable, retryAfterResolution, "The ledger has lost records; nothing is sent until an operator decides", 0},
	codeKeyExpired:        {http.StatusGone, retryNever, "The record of this idempotency key has expired", 0},
	codeLoop:              {http.StatusLoopDetected, retryNever, "The request came back to this proxy", 0},
	codeMisdirected:       {http.StatusMisdirectedRequest, retryNever, "The request is for another host than its connection", 0},
	codeBusy:              {http.StatusServiceUnavailable, retrySameKey, "There are too many tunnels", time.Second},
	codeSealed:            {http.StatusServiceUnavailable, retrySameKey, "The recorded response cannot be read here", 30 * time.Second},
	codeNotRetained:       {http.StatusConflict, retryNever, "The operation is completed, but no response is kept", 0},
	codeTooLarge:          {http.StatusRequestEntityTooLarge, retryNever, "The request body is too large", 0},
	codeNoRoute:           {http.StatusNotFound, retryNever, "No route matches the request", 0},
	codeForbidden:         {http.StatusForbidden, retryNever, "The target is not allowed", 0},
	codeCallerUnknown:     {http.StatusUnauthorized, retryNever, "The caller is not known", 0},
	codeNoOperation:       {http.StatusNotFound, retrySameKey, "No such operation", 0},
	codeMethodNotAllowed:  {http.StatusMethodNotAllowed, retryNever, "The method is not allowed here", 0},
	codeShuttingDown:      {http.StatusServiceUnavailable, retrySameKey, "This proxy is shutting down; nothing was sent", time.Second},
	codeNotResolvable:     {http.StatusConflict, retryNever, "The operation cannot be settled like this as it stands", 0},
	codeInternal:          {http.StatusInternalServerError, retryAfterResolution, "Fencepost failed", 0},
}

// problem is an answer of our own: RFC 9457, with members an agent can act on.
type problem struct {
	code   code
	detail string
	// status overrides the table's where the situation has more than one.
	status int
	// retry and after override the table's.
	retry retry
	after time.Duration
	// id and record say which operation it is about; either may be empty.
	id     keystore.ID
	record *keystore.Record
	state  string
	// other is the key of another operation that the lookup is for.
	other string
	// expires is when a lease that is in the way ends.
	expires keystore.Instant
	// title, when set, says more exactly what the code's own says.
	title string
	// short is the detail in a few words, for a list.
	short string
	// original is the upstream's status where it is known but its body is not.
	original int
}

// problemBody is the JSON of a problem.
type problemBody struct {
	Type           string  `json:"type"`
	Title          string  `json:"title"`
	Status         int     `json:"status"`
	Detail         string  `json:"detail"`
	Code           code    `json:"code"`
	Key            string  `json:"key,omitempty"`
	State          string  `json:"state,omitempty"`
	Operation      string  `json:"operation,omitempty"`
	Lookup         string  `json:"lookup,omitempty"`
	Retry          retry   `json:"retry"`
	RetryAfter     float64 `json:"retry_after,omitempty"`
	OriginalStatus int     `json:"original_status,omitempty"`
	ExpiresAt      string  `json:"expires_at,omitempty"`
	// Error says the same once more, where the SDKs of payment APIs look: some
	// take any JSON without an "error" member for success, whatever its status.
	Error problemError `json:"error"`
}

type problemError struct {
	Type    string `json:"type"`
	Code    code   `json:"code"`
	Message string `json:"message"`
}

// resolved fills what the problem leaves to the table.
func (p *problem) resolved() situation {
	s, ok := situations[p.code]
	if !ok {
		s = situations[codeInternal]
	}
	if p.status != 0 {
		s.status = p.status
	}
	if p.retry != "" {
		s.retry = p.retry
	}
	if p.after != 0 {
		s.after = p.after
	}
	if p.title != "" {
		s.title = p.title
	}
	return s
}

// writeProblem answers with p. It is only called where nothing of an answer has
// been written yet.
func writeProblem(w http.ResponseWriter, p *problem) {
	s := p.resolved()
	b := problemBody{
		Type: "urn:fencepost:problem:" + string(p.code), Title: s.title, Status: s.status, Detail: p.detail, Code: p.code,
		Key: p.id.Key, State: p.state, Retry: s.retry, OriginalStatus: p.original, ExpiresAt: p.expires.String(),
		Error: problemError{"idempotency_error", p.code, p.detail},
	}
	h := w.Header()
	if p.other != "" {
		b.Lookup = lookupPath(p.other)
		h.Set(headerKey, policy.FormatKey(p.id.Key))
	} else if p.id.Key != "" {
		b.Lookup = lookupPath(p.id.Key)
		h.Set(headerKey, policy.FormatKey(p.id.Key))
	}
	if p.record != nil {
		b.Operation = p.record.Operation
		h.Set(headerOperation, b.Operation)
		if p.record.Derived {
			h.Set(headerDerived, "true")
		}
	}
	if p.state != "" {
		h.Set(headerState, p.state)
	}
	if s.after > 0 {
		secs := int64((s.after + time.Second - 1) / time.Second)
		b.RetryAfter = float64(secs)
		h.Set("Retry-After", strconv.FormatInt(secs, 10))
	}
	if p.code == codeCallerUnknown {
		h.Set("WWW-Authenticate", `Bearer realm="fencepost"`)
	}
	body, err := marshal(&b, "")
	if err != nil {
		// unreachable: problemBody has only types that always marshal.
		panic("proxy: " + err.Error())
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("Proxy-Status", proxyStatus(p.code))
	w.WriteHeader(s.status)
	_, _ = w.Write(body)
}

// marshal writes JSON for an API, not for a page: < > & stay as they are.
func marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}

// proxyStatus tells our own answers from the upstream's: RFC 9209, with the
// registered error types where one fits.
func proxyStatus(c code) string {
	switch c {
	case codeUnreachable:
		return "fencepost; error=destination_unavailable; details=" + string(c)
	case codeUnknown:
		return "fencepost; error=connection_terminated; details=" + string(c)
	case codeForbidden:
		return "fencepost; error=destination_ip_prohibited; details=" + string(c)
	case codeLedgerUnavailable, codeLedgerRolledBack, codeInternal, codeShuttingDown:
		return "fencepost; error=proxy_internal_error; details=" + string(c)
	default:
		return "fencepost; error=http_request_denied; details=" + string(c)
	}
}

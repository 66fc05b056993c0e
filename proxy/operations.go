package proxy

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"fencepost/keystore"
	"fencepost/policy"
)

// The operations API on the admin listener: what is not settled, in every
// scope, and a way for a person to settle it with a reason.

// operationsPage is one page of a list.
type operationsPage struct {
	Operations []*document      `json:"operations"`
	Next       string           `json:"next,omitempty"`
	Now        keystore.Instant `json:"now"`
}

// operationsFilter is what a list asks for.
type operationsFilter struct {
	reads  keystore.State
	route  string
	before time.Duration
	query  keystore.Query
}

// listOperations lists operations by the state they read, oldest first.
// Parameters: state (default unknown), scope, route, older_than, limit, cursor.
func (p *Proxy) listOperations(w http.ResponseWriter, r *http.Request) {
	f, err := parseFilter(r.URL.Query())
	if err != nil {
		writeProblem(w, &problem{code: codeMalformed, retry: retryNever, detail: err.Error()})
		return
	}
	page := &operationsPage{Operations: []*document{}}
	// An operation reads unknown when it was written so, and when it was
	// dispatched by somebody who fell silent.
	stored := []keystore.State{f.reads}
	if f.reads == keystore.Unknown {
		stored = append(stored, keystore.Dispatched)
	}
	limit := f.query.Limit
	at, cursor, _ := strings.Cut(f.query.Cursor, ".")
	first, _ := strconv.Atoi(at)
	for i := max(first, 0); i < len(stored); i++ {
		f.query.State, f.query.Cursor = stored[i], ""
		if i == first {
			f.query.Cursor = cursor
		}
		for {
			f.query.Limit = limit - len(page.Operations)
			got, err := p.ledger.list(r.Context(), f.query)
			if err != nil {
				p.log.Error("a list failed", "error", err)
				writeProblem(w, &problem{code: codeLedgerUnavailable, detail: "The ledger could not be listed: " + err.Error()})
				return
			}
			page.Now = got.Now
			for _, rec := range got.Records {
				if f.wants(p, &rec, got.Now) {
					page.Operations = append(page.Operations, p.describe(&keystore.Reply{Record: rec, Now: got.Now}))
				}
			}
			switch {
			case got.Next != "":
				page.Next = strconv.Itoa(i) + "." + got.Next
			case i+1 < len(stored):
				page.Next = strconv.Itoa(i+1) + "."
			default:
				page.Next = ""
			}
			if len(page.Operations) >= limit {
				writeJSON(w, http.StatusOK, page)
				return
			}
			if got.Next == "" {
				break
			}
			f.query.Cursor = got.Next
		}
	}
	writeJSON(w, http.StatusOK, page)
}

func (f *operationsFilter) wants(p *Proxy, r *keystore.Record, now keystore.Instant) bool {
	return !payloadNote(r.Key) && r.Reads(now, p.ledger.gone).State == f.reads &&
		(f.route == "" || r.Route == f.route) &&
		(f.before == 0 || now.Sub(r.UpdatedAt) >= f.before)
}

func parseFilter(q url.Values) (*operationsFilter, error) {
	f := &operationsFilter{reads: keystore.Unknown, route: q.Get("route")}
	f.query = keystore.Query{Scope: q.Get("scope"), Cursor: q.Get("cursor"), Limit: 50}
	var err error
	if s := q.Get("state"); s != "" {
		if f.reads, err = keystore.ParseState(s); err != nil {
			return nil, err
		}
	}
	if s := q.Get("older_than"); s != "" {
		if f.before, err = time.ParseDuration(s); err != nil || f.before < 0 {
			return nil, errors.New("older_than=" + strconv.Quote(s) + " is not a duration; write it like 1h")
		}
	}
	if s := q.Get("limit"); s != "" {
		if f.query.Limit, err = strconv.Atoi(s); err != nil || f.query.Limit < 1 || f.query.Limit > 1000 {
			return nil, errors.New("limit=" + strconv.Quote(s) + " is not a number from 1 to 1000")
		}
	}
	return f, nil
}

// operation reads the operation that the path names.
func (p *Proxy) operation(r *http.Request) (keystore.Reply, *problem) {
	scope, err := url.PathUnescape(chi.URLParam(r, "scope"))
	key, kerr := url.PathUnescape(chi.URLParam(r, "key"))
	if err != nil || kerr != nil || key == "" || len(key) > policy.MaxKeyLength {
		return keystore.Reply{}, &problem{code: codeKeyInvalid, retry: retryNever, detail: "The path must be /v1/operations/{scope}/{key}, both percent-encoded."}
	}
	id := keystore.ID{Scope: scope, Key: key}
	rep, err := p.ledger.get(r.Context(), id)
	if err != nil {
		return rep, &problem{code: codeLedgerUnavailable, id: id, detail: "The ledger could not be asked: " + err.Error()}
	}
	if rep.Result != keystore.Found {
		return rep, &problem{code: codeNoOperation, id: id, detail: "No operation with this key is known in scope " + strconv.Quote(scope) + "."}
	}
	return rep, nil
}

func (p *Proxy) showOperation(w http.ResponseWriter, r *http.Request) {
	rep, prob := p.operation(r)
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	writeJSON(w, http.StatusOK, p.describe(&rep))
}

// showResponse shows what was recorded of an answer, also of an ambiguous one.
func (p *Proxy) showResponse(w http.ResponseWriter, r *http.Request) {
	rep, prob := p.operation(r)
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	if o := rep.Record.Outcome; o == nil || !o.Retained {
		writeProblem(w, &problem{code: codeNoOperation, retry: retryNever, id: rep.Record.ID, record: &rep.Record, state: rep.Record.State.String(), title: "No response is recorded", detail: "The operation is known (its state is " + rep.Record.State.String() + "), and no response of it is recorded."})
		return
	}
	if prob := p.openResponse(&rep); prob != nil {
		writeProblem(w, prob)
		return
	}
	w.Header().Set(headerState, rep.Record.Reads(rep.Now, p.ledger.gone).State.String())
	writeRecorded(w, &rep)
}

// reconcileOperation asks the provider now.
func (p *Proxy) reconcileOperation(w http.ResponseWriter, r *http.Request) {
	rep, prob := p.operation(r)
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	refuse := func(detail string) {
		writeProblem(w, &problem{code: codeNotResolvable, id: rep.Record.ID, record: &rep.Record, state: rep.Record.Reads(rep.Now, p.ledger.gone).State.String(), detail: detail})
	}
	if s := rep.Record.Reads(rep.Now, p.ledger.gone).State; s != keystore.Unknown {
		refuse("It reads " + s.String() + "; only what reads unknown is reconciled.")
		return
	}
	after, v, err := p.reconcile(r.Context(), rep, p.routeNamed(rep.Record.Route), false)
	switch {
	case errors.Is(err, errNoReconciler), errors.Is(err, errProbed):
		refuse("It cannot be reconciled: " + err.Error() + ".")
	case err != nil:
		writeProblem(w, &problem{code: codeLedgerUnavailable, id: rep.Record.ID, detail: "The ledger failed: " + err.Error()})
	default:
		writeJSON(w, http.StatusOK, struct {
			Evidence string    `json:"evidence"`
			Why      string    `json:"why"`
			After    *document `json:"operation"`
		}{v.Evidence.String(), v.Why, p.describe(&after)})
	}
}

// resolution is a person's decision about an UNKNOWN operation.
type resolution struct {
	// As is completed, not_applied or abandoned.
	As string `json:"as"`
	// Reason and Actor are required: they are in the history for ever.
	Reason string `json:"reason"`
	Actor  string `json:"actor"`
	// Status, Header and Body are the response that duplicates get from now on,
	// for completed. Without a status none is kept.
	Status int               `json:"status,omitempty"`
	Header map[string]string `json:"header,omitempty"`
	Body   []byte            `json:"body,omitempty"` // base64 in JSON
	// Attempt is the number of the attempt that the decision is about: what was found
	// out of one says nothing of a later one. 0: the one that is current.
	Attempt int `json:"attempt,omitempty"`
}

// maxResolution bounds the document of a resolution, response included.
const maxResolution = 8 << 20

// resolveOperation settles an operation that reads UNKNOWN. Of concurrent
// settlements one wins; the others are told what won.
func (p *Proxy) resolveOperation(w http.ResponseWriter, r *http.Request) {
	var res resolution
	dec := json.NewDecoder(io.LimitReader(r.Body, maxResolution))
	dec.DisallowUnknownFields()
	err := dec.Decode(&res)
	var ev keystore.Event
	if err == nil {
		ev, err = res.event(p)
	}
	if err != nil {
		writeProblem(w, &problem{code: codeMalformed, retry: retryNever, detail: "The resolution is not usable: " + err.Error() + "."})
		return
	}
	rep, prob := p.operation(r)
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	if res.Attempt != 0 && res.Attempt != rep.Record.Attempt {
		writeProblem(w, &problem{code: codeNotResolvable, id: rep.Record.ID, record: &rep.Record, state: rep.Record.State.String(),
			detail: "The decision is about attempt " + strconv.Itoa(res.Attempt) + ", and " + strconv.Itoa(rep.Record.Attempt) + " is the current one. Look at the operation again."})
		return
	}
	if ev.Kind == keystore.Clear {
		// That it was not applied is said of this attempt, and frees no later one.
		ev.Attempt = rep.Record.AttemptID
	}
	before := rep.Record.State
	rep, no, err := p.ledger.change(r.Context(), rep.Record, rep.Now, ev)
	if err != nil {
		writeProblem(w, &problem{code: codeLedgerUnavailable, id: rep.Record.ID, retry: retryNever, detail: "The ledger did not confirm the resolution: " + err.Error() + ". Look at the operation before you try again."})
		return
	}
	if no != keystore.Allowed || rep.Result != keystore.Written {
		state := rep.Record.Reads(rep.Now, p.ledger.gone).State
		detail := "It reads " + state.String() + "; only what reads unknown can be settled, and only a free reservation or an unknown operation abandoned."
		if n := len(rep.Record.History); n > 0 && state.Settled() {
			h := rep.Record.History[n-1]
			detail = "It was settled as " + state.String() + " at " + h.At.String() + " by " + h.By + " (" + h.Event.String() + ")."
			if h.Why != "" {
				detail += " Reason: " + h.Why + "."
			}
		}
		writeProblem(w, &problem{code: codeNotResolvable, id: rep.Record.ID, record: &rep.Record, state: state.String(), detail: detail})
		return
	}
	p.log.Info("resolved", "scope", rep.Record.Scope, "key", rep.Record.Key, "operation", rep.Record.Operation, "as", res.As, "actor", res.Actor, "reason", res.Reason, "before", before.String(), "after", rep.Record.State.String(), "version", rep.Record.Version)
	p.waiters.wake(rep.Record.ID)
	writeJSON(w, http.StatusOK, p.describe(&rep))
}

// event turns a decision into the event that carries it out.
func (res *resolution) event(p *Proxy) (keystore.Event, error) {
	if strings.TrimSpace(res.Reason) == "" || strings.TrimSpace(res.Actor) == "" {
		return keystore.Event{}, errors.New("reason and actor are required")
	}
	ev := keystore.Event{By: "operator " + res.Actor, Why: res.Reason, Keep: p.cfg.Retention}
	switch res.As {
	case "completed":
		ev.Kind = keystore.Resolve
		o := &keystore.Outcome{Source: keystore.FromOperator, Status: res.Status, BodySize: int64(len(res.Body))}
		if res.Status != 0 {
			if res.Status < 200 || res.Status > 599 {
				return ev, errors.New("status " + strconv.Itoa(res.Status) + " is not an HTTP status of a final answer")
			}
			o.Retained = true
			h := make(http.Header, len(res.Header))
			for name, value := range res.Header {
				h.Set(name, value)
			}
			o.Header = storedFields(h)
			ev.Body = res.Body
		} else if len(res.Body) > 0 || len(res.Header) > 0 {
			return ev, errors.New("a response needs a status")
		}
		ev.Outcome = o
		return ev, nil
	case "not_applied":
		ev.Kind = keystore.Clear
	case "abandoned":
		ev.Kind = keystore.Abandon
	default:
		return ev, errors.New("as " + strconv.Quote(res.As) + " is not one of completed, not_applied, abandoned")
	}
	if res.Status != 0 || len(res.Body) > 0 || len(res.Header) > 0 {
		return ev, errors.New("a response only goes with completed")
	}
	return ev, nil
}

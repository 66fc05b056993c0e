package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"fencepost/keystore"
)

// answer is what a request gets that was not sent, or whose send brought
// nothing: a problem, or the replay of what was recorded.
type answer struct {
	problem *problem
	replay  *keystore.Reply
}

func (a *answer) write(x *exchange, w http.ResponseWriter) {
	if a.replay != nil {
		x.line.replayed = true
		x.line.status = a.replay.Record.Outcome.Status
		writeReplay(w, a.replay)
		return
	}
	s := a.problem.resolved()
	x.line.status, x.line.code = s.status, a.problem.code
	if x.line.reason == "" {
		x.line.reason = a.problem.detail
	}
	writeProblem(w, a.problem)
}

// fail is an answer to what should be impossible. Nothing was sent.
func (x *exchange) fail(why string) *answer {
	x.p.log.Error("a transition was refused that should be possible", "scope", x.id.Scope, "key", x.id.Key, "reason", why)
	return &answer{problem: &problem{code: codeInternal, retry: retrySameKey, id: x.id, detail: why + "; nothing was sent"}}
}

func (x *exchange) ledgerDown(err error) *answer {
	x.line.decision = "ledger_unavailable"
	x.line.reason = err.Error()
	if errors.Is(err, keystore.ErrRolledBack) {
		return &answer{problem: &problem{code: codeLedgerRolledBack, id: x.id, detail: "The ledger went back in time: records of recent operations are lost, and this request may be a repetition of one. It was not sent. Do not repeat it, under any key, before an operator has looked into it."}}
	}
	return &answer{problem: &problem{code: codeLedgerUnavailable, id: x.id, detail: "The ledger could not be asked or written, so this request was not sent. What became of an earlier one with this key is not known now. Send the same request with the same key again."}}
}

func (x *exchange) leaseStale() *answer {
	x.line.decision = "lease_stale"
	return &answer{problem: &problem{code: codeLeaseStale, id: x.id, detail: fmt.Sprintf("Token %d of run %q is not the run's current lease, or has expired. Nothing was sent. Stop this worker; another may own the run.", x.lease.Token, x.lease.Run)}}
}

func (x *exchange) unreachable(a *attempt, err error) *answer {
	r, state := a.record(), a.reads()
	if f, ok := errors.AsType[*forbiddenError](err); ok {
		x.p.tally.refusedHost(x.target.Host, f.short)
		p := f.problem(x.target.Host)
		p.id, p.record, p.state = x.id, &r, state.String()
		return &answer{problem: p}
	}
	what := "No request was sent to "
	if state == keystore.Unknown {
		what = "What became of an earlier send is not known, and this time no request was sent to "
	}
	return &answer{problem: &problem{code: codeUnreachable, id: x.id, record: &r, state: state.String(),
		detail: what + x.target.Scheme + "://" + x.target.Host + ": " + err.Error() + ". Send the same request with the same key again."}}
}

func (x *exchange) unknown(a *attempt, timeout bool, what string) *answer {
	r := a.record()
	status := http.StatusBadGateway
	if timeout {
		status = http.StatusGatewayTimeout
	}
	return &answer{problem: &problem{code: codeUnknown, status: status, id: x.id, record: &r, state: keystore.Unknown.String(),
		detail: "The request was sent, but " + what + ". It may have taken effect. Do not send it again; look it up, and let it be settled first."}}
}

// answerClaim answers a request that does not get to send.
func (x *exchange) answerClaim(c keystore.Claim, rep keystore.Reply) *answer {
	x.line.rec = rep.Record
	x.line.after = rep.Record.Reads(rep.Now, x.p.ledger.gone).State
	if c == keystore.ClaimReplay {
		if p := x.p.openResponse(&rep); p != nil {
			return &answer{problem: p}
		}
		return &answer{replay: &rep}
	}
	r := rep.Record
	p := &problem{id: x.id, record: &r, state: r.Reads(rep.Now, x.p.ledger.gone).State.String()}
	switch c {
	case keystore.ClaimConflict:
		// Nothing but the fact is told: the key's owner may be another worker.
		p.code, p.record, p.state = codeConflict, nil, ""
		p.detail = "This key was first used with another method, target or payload. Nothing was sent. Use a new key for a new request; keep the key only for an exact repetition."
	case keystore.ClaimInFlight:
		p.code = codeInFlight
		p.detail = "A request with this key is on its way. Nothing more was sent. Ask again with the same key, or wait with Prefer: wait=N."
		if left := r.Deadline.Sub(rep.Now); left > 0 && left < time.Second {
			p.after = left
		}
	case keystore.ClaimUnknown:
		p.code = codeUnknown
		p.detail = "A request with this key was sent and its outcome is not known. It may have taken effect. Nothing more was sent. Look it up, and let it be settled first."
		if r.Outcome != nil {
			p.original = r.Outcome.Status
			p.detail = "A request with this key was sent and answered with status " + strconv.Itoa(r.Outcome.Status) + ", which does not tell whether it took effect. Nothing more was sent. Look it up, and let it be settled first."
		}
	case keystore.ClaimAbandoned:
		p.code = codeAbandoned
		p.detail = "An operator decided that this operation is not to be sent (again). Its lookup says why."
	case keystore.ClaimExpired:
		p.code = codeKeyExpired
		p.detail = "This operation was completed long ago and its response is no longer kept. Nothing was sent."
	case keystore.ClaimNotRetained:
		p.code = codeNotRetained
		p.detail = "This operation is completed, but no response of it is kept. Nothing more was sent."
		if r.Outcome != nil {
			p.original = r.Outcome.Status
		}
	default:
		// As little as of a conflict: it may be one.
		p.record, p.state = nil, ""
		p.code, p.retry, p.detail = codeInternal, retrySameKey, "The claim could not be decided; nothing was sent."
	}
	return &answer{problem: p}
}

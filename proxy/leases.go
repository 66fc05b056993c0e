package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"fencepost/keystore"
	"fencepost/policy"
)

// The lease API (DESIGN section 7). A lease gives its holder a fencing token: a
// number that only grows per run. Everything about its life is decided by the
// ledger's clock; a holder whose own clock moved gains nothing.

// Bounds of a lease's time to live.
const (
	defaultLeaseTTL = 30 * time.Second
	minLeaseTTL     = time.Second
	maxLeaseTTL     = 24 * time.Hour
)

// leaseRequest is the body of an acquisition or a renewal.
type leaseRequest struct {
	Owner string `json:"owner"`
	TTL   string `json:"ttl"`
	Token uint64 `json:"token"`
}

// leaseDocument shows a lease.
type leaseDocument struct {
	Run       string           `json:"run"`
	Owner     string           `json:"owner"`
	Token     uint64           `json:"token"`
	Held      bool             `json:"held"`
	ExpiresAt keystore.Instant `json:"expires_at"`
	Now       keystore.Instant `json:"now"`
}

func writeLease(w http.ResponseWriter, status int, rep *keystore.LeaseReply) {
	l := &rep.Lease
	writeJSON(w, status, &leaseDocument{Run: l.Run, Owner: l.Owner, Token: l.Token, Held: l.Live(rep.Now), ExpiresAt: l.ExpiresAt, Now: rep.Now})
}

// leaseRun reads the scope and the run from the request.
func leaseRun(r *http.Request) (scope, run string, prob *problem) {
	scope, _ = r.Context().Value(scopeKey{}).(string)
	run, err := url.PathUnescape(chi.URLParam(r, "run"))
	if err == nil {
		err = policy.CheckRun(run)
	}
	if err != nil {
		return "", "", &problem{code: codeLeaseInvalid, retry: retryNever, detail: "The run in the path must be 1 to 128 visible characters, percent-encoded."}
	}
	return scope, run, nil
}

// readLease reads the body of a lease request and its time to live.
func readLease(r *http.Request) (req leaseRequest, ttl time.Duration, prob *problem) {
	dec := json.NewDecoder(io.LimitReader(r.Body, 4<<10))
	dec.DisallowUnknownFields()
	err := dec.Decode(&req)
	if err == nil {
		ttl = defaultLeaseTTL
		if req.TTL != "" {
			ttl, err = time.ParseDuration(req.TTL)
		}
		if err == nil && (ttl < minLeaseTTL || ttl > maxLeaseTTL) {
			err = fmt.Errorf("ttl %v is not from %v to %v", ttl, minLeaseTTL, maxLeaseTTL)
		}
	}
	if err != nil {
		return req, 0, &problem{code: codeLeaseInvalid, retry: retryNever, detail: "The lease request is not usable: " + err.Error() + `. Send {"owner": "w1", "ttl": "30s"} to acquire, {"token": 7, "ttl": "30s"} to renew.`}
	}
	return req, ttl, nil
}

func (p *Proxy) leaseLedgerDown(w http.ResponseWriter, err error) {
	p.log.Error("a lease call failed", "error", err)
	writeProblem(w, &problem{code: codeLedgerUnavailable, detail: "The ledger did not confirm the lease: " + err.Error() + ". Do not act on it; ask again."})
}

func (p *Proxy) acquireLease(w http.ResponseWriter, r *http.Request) {
	scope, run, prob := leaseRun(r)
	var req leaseRequest
	var ttl time.Duration
	if prob == nil {
		req, ttl, prob = readLease(r)
	}
	if prob == nil && (req.Owner == "" || len(req.Owner) > 128 || req.Token != 0) {
		prob = &problem{code: codeLeaseInvalid, retry: retryNever, detail: "An acquisition names its owner, in at most 128 characters, and brings no token."}
	}
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	writer := p.ledger.writer()
	for range maxTries {
		cur, err := p.ledger.lease(r.Context(), scope, run)
		if err != nil {
			p.leaseLedgerDown(w, err)
			return
		}
		if cur.Result == keystore.Found && cur.Lease.Live(cur.Now) {
			after := max(cur.Lease.ExpiresAt.Sub(cur.Now), time.Second)
			if cur.Lease.ExpiresAt.IsZero() {
				after = time.Minute
			}
			writeProblem(w, &problem{code: codeLeaseHeld, after: after, detail: "Run " + strconv.Quote(run) + " is held by " + strconv.Quote(cur.Lease.Owner) + " until " + cur.Lease.ExpiresAt.String() + ".", expires: cur.Lease.ExpiresAt})
			return
		}
		// A run that has no lease may have had one that was lost with its record: its
		// tokens go on above every token ever given in the scope.
		token := cur.Lease.Token + 1
		if cur.Result == keystore.NotFound {
			floor, err := p.ledger.lease(r.Context(), scope, leaseFloor)
			if err != nil {
				p.leaseLedgerDown(w, err)
				return
			}
			token = max(token, floor.Lease.Token+1)
		}
		if err := p.raiseFloor(r, scope, token); err != nil {
			p.leaseLedgerDown(w, err)
			return
		}
		// The version is the guard: were the lease renewed or taken since, it moved.
		rep, err := p.ledger.swapLease(r.Context(), keystore.LeaseWrite{TTL: ttl, Lease: keystore.Lease{
			Scope: scope, Run: run, Owner: req.Owner, Token: token, AcquiredAt: keystore.StampNow, Version: cur.Lease.Version + 1, Writer: writer,
		}})
		if err != nil {
			p.leaseLedgerDown(w, err)
			return
		}
		if rep.Result == keystore.Written {
			writeLease(w, http.StatusCreated, &rep)
			return
		}
	}
	p.leaseLedgerDown(w, errors.New("the lease moved under every try"))
}

// leaseFloor is the run under whose name a scope's highest token is kept. No
// caller's run has a space in it.
const leaseFloor = "highest token"

// raiseFloor notes that a token is about to be given, before it is.
func (p *Proxy) raiseFloor(r *http.Request, scope string, token uint64) error {
	writer := p.ledger.writer()
	for range maxTries {
		cur, err := p.ledger.lease(r.Context(), scope, leaseFloor)
		if err != nil || cur.Lease.Token >= token {
			return err
		}
		rep, err := p.ledger.swapLease(r.Context(), keystore.LeaseWrite{Lease: keystore.Lease{
			Scope: scope, Run: leaseFloor, Token: token, AcquiredAt: keystore.StampNow, Version: cur.Lease.Version + 1, Writer: writer,
		}})
		if err != nil || rep.Result == keystore.Written {
			return err
		}
	}
	return errors.New("the highest token moved under every try")
}

// withToken carries out a change of a lease that its holder's token allows.
func (p *Proxy) withToken(w http.ResponseWriter, r *http.Request, scope, run string, token uint64, ttl time.Duration, change func(*keystore.Lease)) (keystore.LeaseReply, bool) {
	writer := p.ledger.writer()
	for range maxTries {
		cur, err := p.ledger.lease(r.Context(), scope, run)
		if err != nil {
			p.leaseLedgerDown(w, err)
			return cur, false
		}
		if cur.Result == keystore.NotFound || cur.Lease.Token != token || !cur.Lease.Live(cur.Now) {
			writeProblem(w, &problem{code: codeLeaseStale, detail: fmt.Sprintf("Token %d of run %q is not its current lease, or has expired. Stop this worker; another may own the run.", token, run)})
			return cur, false
		}
		l := cur.Lease
		l.Version++
		l.Writer = writer
		change(&l)
		rep, err := p.ledger.swapLease(r.Context(), keystore.LeaseWrite{Lease: l, TTL: ttl, MustBeLive: true})
		switch {
		case err != nil:
			p.leaseLedgerDown(w, err)
			return rep, false
		case rep.Result == keystore.Written:
			return rep, true
		}
	}
	p.leaseLedgerDown(w, errors.New("the lease moved under every try"))
	return keystore.LeaseReply{}, false
}

func (p *Proxy) renewLease(w http.ResponseWriter, r *http.Request) {
	scope, run, prob := leaseRun(r)
	var req leaseRequest
	var ttl time.Duration
	if prob == nil {
		req, ttl, prob = readLease(r)
	}
	if prob == nil && (req.Token == 0 || req.Owner != "") {
		prob = &problem{code: codeLeaseInvalid, retry: retryNever, detail: "A renewal brings the token of the lease, and no owner."}
	}
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	if rep, ok := p.withToken(w, r, scope, run, req.Token, ttl, func(*keystore.Lease) {}); ok {
		writeLease(w, http.StatusOK, &rep)
	}
}

// releaseLease ends a lease. The token stays in the ledger, so that the next
// one is greater.
func (p *Proxy) releaseLease(w http.ResponseWriter, r *http.Request) {
	scope, run, prob := leaseRun(r)
	token, err := strconv.ParseUint(r.URL.Query().Get("token"), 10, 64)
	if prob == nil && (err != nil || token == 0) {
		prob = &problem{code: codeLeaseInvalid, retry: retryNever, detail: "A release names the token of the lease: DELETE …?token=7."}
	}
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	if _, ok := p.withToken(w, r, scope, run, token, 0, func(l *keystore.Lease) { l.Owner = "" }); ok {
		w.WriteHeader(http.StatusNoContent)
	}
}

func (p *Proxy) showLease(w http.ResponseWriter, r *http.Request) {
	scope, run, prob := leaseRun(r)
	if prob != nil {
		writeProblem(w, prob)
		return
	}
	rep, err := p.ledger.lease(r.Context(), scope, run)
	switch {
	case err != nil:
		p.leaseLedgerDown(w, err)
	case rep.Result != keystore.Found:
		writeProblem(w, &problem{code: codeNoLease, detail: "No lease was ever given for run " + strconv.Quote(run) + " in this caller's scope."})
	default:
		writeLease(w, http.StatusOK, &rep)
	}
}

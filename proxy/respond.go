package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fencepost/keystore"
	"fencepost/policy"
)

// answered settles a send that the upstream answered, and passes the answer on.
// The record is written first, so that what the caller saw is never forgotten;
// only what cannot wait (a stream, or more than is kept) is passed on as it
// comes and recorded at its end.
func (x *exchange) answered(ctx context.Context, w http.ResponseWriter, a *attempt, resp *http.Response, life context.Context, dog *watchdog) {
	x.line.received = resp.StatusCode
	if streams(resp.Header) {
		x.relay(ctx, w, a, resp, nil, true, life, dog)
		return
	}
	body, err := x.readAnswer(resp)
	switch {
	case err == errOverLimit, err == errSlow:
		x.relay(ctx, w, a, resp, body, err == errSlow, life, dog)
		return
	case err != nil:
		timeout, what := x.explain(life, err)
		what = "its answer (status " + strconv.Itoa(resp.StatusCode) + ") was cut short: " + what
		x.doubted(ctx, a, what, x.outcome(resp, nil, false, 0), nil)
		x.unknown(a, timeout, what).write(x, w)
		return
	}
	sum := sha256.Sum256(body)
	o := x.outcome(resp, sum[:], true, int64(len(body)))
	state := x.conclude(ctx, a, resp, o, body)
	// Here the trailers are known, announced by the upstream or not.
	announceTrailer(w, resp)
	x.head(w, resp, a, state)
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body)
	copyTrailer(w, resp)
}

// readAnswer reads an answer that need not flow. errOverLimit and errSlow say that
// there is more of it, and that it must flow after all.
func (x *exchange) readAnswer(resp *http.Response) ([]byte, error) {
	if resp.ContentLength >= 0 {
		return readWhole(resp, x.route.Limits.Response)
	}
	p := newPump(resp.Body)
	resp.Body = p
	return p.until(x.route.Limits.Response, x.p.cfg.StreamAfter)
}

// conclude records a whole answer by its class and returns the state that the
// ledger shows afterwards.
func (x *exchange) conclude(ctx context.Context, a *attempt, resp *http.Response, o *keystore.Outcome, body []byte) keystore.State {
	class := x.classify(a, resp, body)
	x.line.decision += ":" + class.String()
	switch class {
	case policy.ClassFinal:
		return x.settle(ctx, a, keystore.Event{Kind: keystore.Complete, Keep: x.keep(), Outcome: o, Body: body})
	case policy.ClassNotApplied:
		return x.released(ctx, a, "the upstream answered "+strconv.Itoa(o.Status)+": not applied")
	default:
		return x.doubted(ctx, a, "the upstream answered "+strconv.Itoa(o.Status)+", which does not tell whether it took effect", o, body)
	}
}

func (x *exchange) outcome(resp *http.Response, sum []byte, retained bool, size int64) *keystore.Outcome {
	o := &keystore.Outcome{Source: keystore.FromResponse, Status: resp.StatusCode, Header: storedFields(resp.Header), BodySize: size, Retained: retained}
	if len(resp.Trailer) > 0 {
		o.Trailer = storedFields(resp.Trailer)
	}
	if sum != nil {
		o.BodySHA256 = hex.EncodeToString(sum)
	}
	return o
}

// outcomeOf is the outcome of an answer that was read with the given error, or
// nil when it was cut short and so tells nothing for certain.
func (x *exchange) outcomeOf(resp *http.Response, body []byte, err error) *keystore.Outcome {
	switch {
	case errors.Is(err, errOverLimit):
		sum := sha256.New()
		sum.Write(body)
		rest, err := io.Copy(sum, resp.Body)
		if err != nil {
			return nil
		}
		return x.outcome(resp, sum.Sum(nil), false, int64(len(body))+rest)
	case err != nil:
		return nil
	}
	sum := sha256.Sum256(body)
	return x.outcome(resp, sum[:], true, int64(len(body)))
}

// classify says what an answer is worth. Of a body that was not kept the rules
// see nothing.
func (x *exchange) classify(a *attempt, resp *http.Response, body []byte) policy.Class {
	if len(x.route.Outcomes) > 0 {
		var readable bool
		if body, readable = plainBody(resp.Header, body); !readable {
			// An answer that the rules cannot read might be one that they are there for.
			return policy.ClassUnknown
		}
	}
	m := &policy.Message{Status: resp.StatusCode, Header: resp.Header, Body: body}
	if a.resend != nil {
		return policy.ClassifyAgain(x.route.Outcomes, m)
	}
	return policy.ClassifyBy(x.route.Outcomes, m)
}

// plainBody undoes a body's content coding for the rules, and reports whether it
// could. The upstream was asked for none.
func plainBody(h http.Header, body []byte) ([]byte, bool) {
	codings := h["Content-Encoding"]
	if len(codings) == 0 || len(body) == 0 || len(codings) == 1 && strings.EqualFold(codings[0], "identity") {
		return body, true
	}
	if len(codings) > 1 || !strings.EqualFold(codings[0], "gzip") && !strings.EqualFold(codings[0], "x-gzip") {
		return nil, false
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxRuleBody+1))
	return plain, err == nil && len(plain) <= maxRuleBody
}

// maxRuleBody bounds what a compressed body may become for the rules.
const maxRuleBody = 4 << 20

// relay passes an answer on as it comes and records it at its end. head is what
// was read already; keep says whether the body may still fit what is kept.
func (x *exchange) relay(ctx context.Context, w http.ResponseWriter, a *attempt, resp *http.Response, head []byte, keep bool, life context.Context, dog *watchdog) {
	announceTrailer(w, resp)
	x.head(w, resp, a, keystore.Dispatched)
	w.WriteHeader(resp.StatusCode)
	rc := http.NewResponseController(w)
	c := &copying{w: w, rc: rc, patience: x.p.cfg.BodyTimeout, sum: sha256.New(), limit: x.route.Limits.Response, keep: keep}
	if len(head) > 0 {
		dog.rest()
		c.write(head)
		c.flush()
		dog.alive()
	}
	buf := x.p.buffers.Get()
	defer x.p.buffers.Put(buf)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			dog.rest()
			c.write(buf[:n])
			c.flush()
			dog.alive()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			_, what := x.explain(life, err)
			x.doubted(ctx, a, "its answer (status "+strconv.Itoa(resp.StatusCode)+") was cut short after "+strconv.FormatInt(c.size, 10)+" bytes: "+what, x.outcome(resp, nil, false, c.size), nil)
			x.line.status = resp.StatusCode
			// The status is out; only a broken connection can say that this is not
			// the whole answer.
			panic(http.ErrAbortHandler)
		}
	}
	x.conclude(ctx, a, resp, x.outcome(resp, c.sum.Sum(nil), c.keep, c.size), c.body())
	x.line.status = resp.StatusCode
	copyTrailer(w, resp)
}

// copying is an answer on its way to the caller and, while it fits, to the
// record.
type copying struct {
	w    io.Writer
	rc   *http.ResponseController
	gone error // the caller can no longer be reached
	// patience is how long the caller may keep us waiting to take a part.
	patience time.Duration
	sum      hash.Hash
	kept     []byte
	limit    int64
	size     int64
	keep     bool
}

func (c *copying) write(b []byte) {
	if len(b) == 0 {
		return
	}
	c.size += int64(len(b))
	c.sum.Write(b)
	if c.keep = c.keep && c.size <= c.limit; c.keep {
		c.kept = append(c.kept, b...)
	} else {
		c.kept = nil
	}
	if c.gone == nil {
		// A caller that left, or that stopped reading, does not stop the recording.
		_ = c.rc.SetWriteDeadline(time.Now().Add(c.patience))
		_, c.gone = c.w.Write(b)
	}
}

func (c *copying) flush() {
	if c.gone == nil {
		c.gone = c.rc.Flush()
	}
}

func (c *copying) body() []byte {
	if !c.keep {
		return nil
	}
	return c.kept
}

// head writes the header fields of an upstream's answer, without the status.
func (x *exchange) head(w http.ResponseWriter, resp *http.Response, a *attempt, state keystore.State) {
	x.line.status = resp.StatusCode
	h := w.Header()
	copyResponseHeader(h, resp.Header)
	a.mu.Lock()
	tag(h, &a.rec, state)
	a.mu.Unlock()
	delete(h, headerReplayed)
	addProxyStatus(h, resp.StatusCode)
}

// tag sets the fields that say which operation an answer belongs to.
func tag(h http.Header, r *keystore.Record, state keystore.State) {
	h[headerKey] = []string{policy.FormatKey(r.Key)}
	h[headerOperation] = []string{r.Operation}
	h[headerState] = []string{state.String()}
	if r.Derived {
		h[headerDerived] = []string{"true"}
	}
}

// addProxyStatus tells the upstream's answers from our own (RFC 9209).
func addProxyStatus(h http.Header, status int) {
	h["Proxy-Status"] = append(h["Proxy-Status"], "fencepost; received-status="+strconv.Itoa(status))
}

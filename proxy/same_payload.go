package proxy

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"fencepost/keystore"
)

// A payload note is a record of its own that says under which key a payload was
// last sent. Its key begins with a word and a space, which no caller's key can.
const payloadPrefix = "payload "

// payloadNote reports whether a record is a note and not an operation.
func payloadNote(key string) bool { return strings.HasPrefix(key, payloadPrefix) }

// samePayload refuses a request whose payload was sent under another key within
// the route's window. A caller that means it says so with
// Fencepost-Allow-Duplicate: true.
//
// The note is written before the claim, so that of two keys at once one is
// refused; it costs a round trip, and only where the route asks for it.
func (x *exchange) samePayload(ctx context.Context) *answer {
	if !x.route.SamePayload.Reject || x.derived || strings.EqualFold(x.req.Header.Get(headerAllow), "true") {
		return nil
	}
	p := x.p
	id := keystore.ID{Scope: x.id.Scope, Key: payloadPrefix + x.fingerprint}
	for range maxTries {
		w, no := keystore.Next(nil, keystore.Event{
			Kind: keystore.Reserve, Writer: p.ledger.writer(), By: p.ledger.instance, Attempt: uuid.NewString(),
			Silence: x.route.SamePayload.Window, Keep: x.route.SamePayload.Window, Why: "payload note",
			New: &keystore.Record{ID: id, Operation: uuid.NewString(), Fingerprint: x.fingerprint, Method: x.req.Method, Route: x.route.Name, Captured: map[string]string{"key": x.id.Key}},
		}, 0, nil)
		if no != keystore.Allowed {
			return x.fail("the payload note was refused: " + string(no))
		}
		rep, err := p.ledger.insert(ctx, w)
		if err != nil {
			return x.ledgerDown(err)
		}
		if rep.Result == keystore.Written || rep.Record.Captured["key"] == x.id.Key {
			return nil
		}
		earlier, stands, err := x.stands(ctx, rep)
		switch {
		case err != nil:
			return x.ledgerDown(err)
		case stands:
			x.line.decision = "duplicate_payload"
			return &answer{problem: &problem{code: codeDuplicatePayload, id: x.id, other: rep.Record.Captured["key"], state: earlier,
				detail: "The same request was sent under key " + strconv.Quote(rep.Record.Captured["key"]) + " less than " + x.route.SamePayload.Window.String() + " ago. Nothing was sent. Look that one up; if you do mean it twice, send " + headerAllow + ": true."}}
		}
		// The note is of no worth any more: the next try writes a new one, unless
		// another is quicker.
		if _, err := p.ledger.delete(ctx, id, rep.Record.Version); err != nil {
			return x.ledgerDown(err)
		}
	}
	return x.ledgerDown(errors.New("the payload note moved under every try"))
}

// stands reports whether a note still speaks of an effect that happened, or may
// have, or may be about to.
func (x *exchange) stands(ctx context.Context, note keystore.Reply) (state string, stands bool, err error) {
	if note.Record.Expires.Reached(note.Now) {
		return "", false, nil
	}
	rep, err := x.p.ledger.get(ctx, keystore.ID{Scope: x.id.Scope, Key: note.Record.Captured["key"]})
	if err != nil {
		return "", false, err
	}
	if rep.Result != keystore.Found {
		// Its request is between note and claim, or died there.
		return keystore.StateNone.String(), rep.Now.Sub(note.Record.ReservedAt) < x.p.cfg.OwnerDeadline, nil
	}
	v := rep.Record.Reads(rep.Now, x.p.ledger.gone)
	return v.State.String(), v.State != keystore.Abandoned && !(v.State == keystore.Reserved && v.Free), nil
}

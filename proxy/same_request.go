package proxy

import (
	"fencepost/keystore"
	"fencepost/policy"
)

// decide says what this request may do about the record of its key.
//
// A record is bound to a fingerprint by the scheme of its time: it may be older than
// this program, the route's form of the body or its key may have changed, or this
// request may lack the Content-Type of the first. Then this request is compared
// by that scheme, and by nothing that is looser than what the first one was bound
// by. Where that cannot be done, the two are not the same.
func (x *exchange) decide(rep *keystore.Reply) keystore.Claim {
	fp := x.fingerprint
	if scheme := policy.SchemeOf(rep.Record.Fingerprint); scheme != policy.SchemeOf(fp) {
		other, err := x.fingerprintAs(scheme)
		if err != nil {
			x.p.log.Error("cannot read a spooled request body", "error", err)
			return keystore.ClaimRefuse // neither the same nor another: the retry may know
		}
		if other != "" {
			fp = other
		}
	}
	return keystore.Decide(&rep.Record, fp, rep.Now, x.p.ledger.gone)
}

// fingerprintAs gives this request's fingerprint by another scheme, or "" where it
// has none.
func (x *exchange) fingerprintAs(scheme string) (string, error) {
	if fp, known := x.others[scheme]; known {
		return fp, nil
	}
	fp, _, err := x.p.finger.SumAs(scheme, x.route, x.asked(), x.body.hashed())
	if err != nil {
		return "", err
	}
	if x.others == nil {
		x.others = make(map[string]string)
	}
	x.others[scheme] = fp
	return fp, nil
}

// asked is the request as it is fingerprinted. The body must have been read: its
// trailers come last. Those that are not sent on, a credential for one, do not
// count. A field that overrides the method does.
func (x *exchange) asked() policy.Request {
	method := x.req.Method
	if o := policy.Override(x.req.Header); o != "" {
		method += " as " + o // which no method can be
	}
	return policy.Request{Method: method, Target: x.target, Header: x.req.Header, Trailer: x.trailer}
}

// hashed is the body as it is fingerprinted.
func (s *spooled) hashed() policy.Body {
	return policy.Body{Sum: s.sum, Len: s.size, Open: s.reader}
}

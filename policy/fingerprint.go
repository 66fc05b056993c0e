package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"net/textproto"
	"slices"
)

// Fingerprinter makes fingerprints: short values that are equal when two requests
// are the same request. It is immutable.
type Fingerprinter struct {
	key []byte
}

// NewFingerprinter returns a Fingerprinter. With a key it uses HMAC-SHA-256, so that
// whoever reads the ledger cannot guess a small payload from its digest; without
// one (nil or empty) SHA-256. The key is copied.
func NewFingerprinter(key []byte) *Fingerprinter {
	return &Fingerprinter{key: slices.Clone(key)}
}

// NewBody returns the hash to write the request's body to while it is read. Its sum
// is not keyed, so it must go nowhere but into Sum.
func (f *Fingerprinter) NewBody() hash.Hash { return sha256.New() }

// Request is what a fingerprint covers besides the body.
type Request struct {
	Method string
	Target Target
	// Header is in canonical form. Read are the route's fields, Content-Encoding,
	// Content-Type, and Connection, whose named fields do not reach the upstream.
	Header map[string][]string
	// Trailer is what came behind the body; a field without a value did not come.
	Trailer map[string][]string
}

// Body is the body of a request as it was received.
type Body struct {
	Sum []byte // NewBody's sum over it, also over an empty one
	Len int64  // the bytes that were written to NewBody's hash
	// Open gives a new reader over it, from its first byte. It is called where the
	// body is parsed. Nil is an empty body.
	Open func() io.Reader
}

// Sum gives the fingerprint of a request: the scheme, a colon, and 64 hexadecimal
// digits. The scheme is the one of the route's form of the body, or raw2 where the
// body is not beyond doubt of that form: see FingerprintRule.Body. The same request
// always gets the same scheme.
//
// The idempotency key is not part of it, nor anything of the route but its
// FingerprintRule: renaming a route must not turn retries into conflicts. Changing
// the choice of fields does, as it should.
//
// The error is the one of reading the body, never one of parsing it.
func (f *Fingerprinter) Sum(route *Route, req Request, body Body) (string, error) {
	if kind := chosenForm(route, &req); kind != BodyRaw {
		sum, ok, err := parsedSum(kind, route, &req, body)
		if err != nil {
			return "", err
		}
		if ok {
			return f.make(schemeFor(kind, len(f.key) > 0), route, &req, sum[:], 0), nil
		}
	}
	return f.make(schemeFor(BodyRaw, len(f.key) > 0), route, &req, body.Sum, body.Len), nil
}

// SumAs gives the fingerprint of a request as the given scheme makes it, which is
// how it is compared with a record of another time or configuration: the first
// request decided what its key is bound to.
//
// ok is false where the two cannot be compared, and so must not be taken for the
// same: a scheme that is not known here, an HMAC without the key, or a body that
// has not that form. The error is the one of reading the body.
func (f *Fingerprinter) SumAs(scheme string, route *Route, req Request, body Body) (fp string, ok bool, err error) {
	s := schemeNamed(scheme)
	if s == nil || s.keyed && len(f.key) == 0 {
		return "", false, nil
	}
	if s.form == BodyRaw {
		return f.make(s, route, &req, body.Sum, body.Len), true, nil
	}
	sum, ok, err := parsedSum(s.form, route, &req, body)
	if err != nil || !ok {
		return "", false, err
	}
	return f.make(s, route, &req, sum[:], 0), true, nil
}

// make computes a fingerprint. Of a parsed body, bodySum is what parsedSum gave.
//
// Every field has its length in front, so that no two requests meet by moving
// bytes from one field to the next; lengths and counts are 8 bytes, big-endian.
func (f *Fingerprinter) make(s *scheme, route *Route, req *Request, bodySum []byte, bodyLen int64) string {
	// 512 bytes hold a usual request without going to the heap.
	var space [512]byte
	b := appendField(space[:0], s.name)
	b = appendField(b, req.Method)
	b = appendField(b, req.Target.Scheme)
	b = appendField(b, req.Target.Host)
	b = appendField(b, req.Target.Path)
	b = appendField(b, req.Target.Query)
	names := canonicalNames(route.Fingerprint.Headers)
	b = binary.BigEndian.AppendUint64(b, uint64(len(names)))
	for _, name := range names {
		values := req.Header[name]
		if !s.first {
			values = req.sent(name)
		}
		b = appendField(b, name)
		b = appendValues(b, values)
	}
	if !s.first {
		if s.form == BodyRaw {
			b = appendCodings(b, req)
		}
		b = appendTrailer(b, req.Trailer)
	}
	if s.form == BodyRaw {
		b = binary.BigEndian.AppendUint64(b, uint64(bodyLen))
	}
	b = appendField(b, bodySum)

	var sum [sha256.Size]byte
	if !s.keyed {
		sum = sha256.Sum256(b)
	} else {
		mac := hmac.New(sha256.New, f.key)
		mac.Write(slices.Clone(b)) // what an interface gets is on the heap; space need not be
		sum = [sha256.Size]byte(mac.Sum(nil))
	}
	var text [maxSchemeName + 1 + 2*sha256.Size]byte
	return string(hex.AppendEncode(append(append(text[:0], s.name...), ':'), sum[:]))
}

// sent gives the values of a field as the upstream gets them: none of one that the
// Connection field names.
func (r *Request) sent(name string) []string {
	values := r.Header[name]
	if conn := r.Header["Connection"]; len(values) > 0 && len(conn) > 0 && NamedInConnection(conn, name) {
		return nil
	}
	return values
}

// appendValues adds the values of a field. Their number tells an absent field (0)
// from an empty one (1).
func appendValues(b []byte, values []string) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(len(values)))
	for _, v := range values {
		b = appendField(b, v)
	}
	return b
}

// appendCodings adds the content codings of the body, whose bytes mean nothing
// without them.
func appendCodings(b []byte, req *Request) []byte {
	values := req.sent("Content-Encoding")
	if len(values) == 0 {
		return binary.BigEndian.AppendUint64(b, 0) // the usual case, at no cost
	}
	return appendValues(b, codings(values))
}

// appendTrailer adds the trailer fields that came, sorted by name.
func appendTrailer(b []byte, trailer map[string][]string) []byte {
	if len(trailer) == 0 {
		return binary.BigEndian.AppendUint64(b, 0) // the usual case, at no cost
	}
	var names []string
	for name, values := range trailer {
		if len(values) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	b = binary.BigEndian.AppendUint64(b, uint64(len(names)))
	for _, name := range names {
		b = appendField(b, name)
		b = appendValues(b, trailer[name])
	}
	return b
}

func appendField[T string | []byte](b []byte, field T) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(field))), field...)
}

// canonicalNames puts field names into canonical form, sorts them and drops
// repetitions. Names that are so already, as those of a Table's routes are, come
// back as they are, at no cost.
func canonicalNames(names []string) []string {
	clean := true
	for i, name := range names {
		if name != textproto.CanonicalMIMEHeaderKey(name) || i > 0 && names[i-1] >= name {
			clean = false
		}
	}
	if clean {
		return names
	}
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, textproto.CanonicalMIMEHeaderKey(name))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

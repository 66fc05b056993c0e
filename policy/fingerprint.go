package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"net/textproto"
	"slices"
	"strings"
)

// The schemes a fingerprint can be made by. A scheme never changes what it hashes;
// a change is a new name, so that a record made before an update is recognised as
// one that cannot be compared and not taken for another payload.
const (
	SchemeRaw     = "raw1"      // SHA-256 over method, target, chosen fields and the body's bytes
	SchemeRawHMAC = "raw1-hmac" // the same under HMAC-SHA-256
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
	Header map[string][]string // in canonical form; read for the route's fields only
}

// Sum gives the fingerprint of a request: the scheme, a colon, and 64 hexadecimal
// digits. bodySum is NewBody's sum over the body, also for an empty one, and bodyLen
// the number of bytes written to it.
//
// The idempotency key is not part of it, nor anything of the route but the choice of fields:
// renaming a route must not turn retries into conflicts. Changing the choice does,
// as it should.
func (f *Fingerprinter) Sum(route *Route, req Request, bodySum []byte, bodyLen int64) string {
	scheme := SchemeRaw
	if len(f.key) > 0 {
		scheme = SchemeRawHMAC
	}
	// Every field has its length in front, so that no two requests meet by moving
	// bytes from one field to the next; lengths and counts are 8 bytes, big-endian.
	// 512 bytes hold a usual request without going to the heap.
	var space [512]byte
	b := appendField(space[:0], scheme)
	b = appendField(b, req.Method)
	b = appendField(b, req.Target.Scheme)
	b = appendField(b, req.Target.Host)
	b = appendField(b, req.Target.Path)
	b = appendField(b, req.Target.Query)
	names := canonicalNames(route.Fingerprint.Headers)
	b = binary.BigEndian.AppendUint64(b, uint64(len(names)))
	for _, name := range names {
		values := req.Header[name]
		b = appendField(b, name)
		// The number of values tells an absent field (0) from an empty one (1).
		b = binary.BigEndian.AppendUint64(b, uint64(len(values)))
		for _, v := range values {
			b = appendField(b, v)
		}
	}
	b = binary.BigEndian.AppendUint64(b, uint64(bodyLen))
	b = appendField(b, bodySum)

	var sum [sha256.Size]byte
	if scheme == SchemeRaw {
		sum = sha256.Sum256(b)
	} else {
		mac := hmac.New(sha256.New, f.key)
		mac.Write(slices.Clone(b)) // what an interface gets is on the heap; space need not be
		sum = [sha256.Size]byte(mac.Sum(nil))
	}
	var text [len(SchemeRawHMAC) + 1 + 2*sha256.Size]byte
	return string(hex.AppendEncode(append(append(text[:0], scheme...), ':'), sum[:]))
}

func appendField[T string | []byte](b []byte, field T) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(field))), field...)
}

// SchemeOf gives the scheme that made a fingerprint, or "" for what is none.
// Fingerprints of different schemes cannot be compared: that they differ says
// nothing about the requests.
func SchemeOf(fp string) string {
	scheme, _, found := strings.Cut(fp, ":")
	if !found {
		return ""
	}
	return scheme
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

package policy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// DeriveUpstreamKey makes the key that an upstream gets with SendDerived: the
// same for the same scope, key and target, and nothing that could be turned back.
func DeriveUpstreamKey(scope, key string, t Target) string {
	return "fp-" + digest("upstream-key", scope, key, t.Scheme, t.Host)
}

// DeriveKey makes the key of a request that brings none: the same for the same
// scope, lease run and fingerprint, which covers method, target and payload.
func DeriveKey(scope, run, fingerprint string) string {
	return "derived-" + digest("derived-key", scope, run, fingerprint)
}

// digest is a short printable digest of fields, no two lists of which run into
// each other.
func digest(fields ...string) string {
	h := sha256.New()
	var n [8]byte
	for _, f := range fields {
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		h.Write(n[:])
		h.Write([]byte(f))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:24])
}

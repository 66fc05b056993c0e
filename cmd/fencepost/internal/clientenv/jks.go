package clientenv

import (
	"encoding/binary"
	"errors"
)

// jksMagic begins a store of the type JKS, which older JDKs and Debian have for
// their cacerts.
const jksMagic = 0xfeedfeed

func isJKS(b []byte) bool { return len(b) >= 4 && binary.BigEndian.Uint32(b) == jksMagic }

// readJKS reads the trusted certificates of a JKS store. Its digest, which takes the
// store's password, is not checked: whoever could change the file could also change
// what java itself runs.
//
// The form, all numbers big-endian: magic, version (1 or 2), count; each entry a tag
// (1 key, 2 trusted certificate), alias, time of 8 bytes, and the certificate, in
// version 2 with its type in front; at the end a SHA-1 digest.
func readJKS(b []byte) (*certs, error) {
	r := &reader{b: b[4:]}
	version, count := r.number(4), r.number(4)
	if !r.failed && version != 1 && version != 2 {
		return nil, errors.New("it is a JKS store of an unknown version")
	}
	certificate := func() []byte {
		if version == 2 {
			r.take(r.number(2)) // "X.509"
		}
		return r.take(r.number(4))
	}
	c := &certs{}
	for i := uint64(0); i < count && !r.failed; i++ {
		tag := r.number(4)
		r.take(r.number(2)) // the alias
		r.take(8)
		switch tag {
		case 1: // a key of the user's own: not trusted, and not taken along
			r.take(r.number(4))
			for range r.number(4) {
				certificate()
				if r.failed {
					break
				}
			}
		case 2:
			if der := certificate(); !r.failed {
				c.add(der)
			}
		default:
			r.failed = true
		}
	}
	if r.take(20); r.failed || len(r.b) > 0 {
		return nil, errors.New("it is a JKS store that is cut short or damaged")
	}
	return c, nil
}

// reader takes bytes from the front, until there are not enough.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n uint64) []byte {
	if r.failed || n > uint64(len(r.b)) {
		r.failed = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) number(size uint64) uint64 {
	var n uint64
	for _, b := range r.take(size) {
		n = n<<8 | uint64(b)
	}
	return n
}

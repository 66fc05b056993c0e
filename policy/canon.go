package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// canon digests the canonical encoding of something parsed. What is written has a
// kind or a length in front, so that no two things run into each other.
type canon struct {
	h hash.Hash
	b []byte // not yet in h
}

func newCanon() *canon { return &canon{h: sha256.New(), b: make([]byte, 0, 256)} }

// kind writes one byte that says what comes.
func (c *canon) kind(k byte) { c.b = append(c.room(1), k) }

// number writes 8 bytes, big-endian.
func (c *canon) number(n uint64) { c.b = binary.BigEndian.AppendUint64(c.room(8), n) }

// text writes a text with its length in front.
func (c *canon) text(s string) {
	c.number(uint64(len(s)))
	c.plain(s)
}

// plain writes a text alone.
func (c *canon) plain(s string) {
	for {
		n := min(len(s), cap(c.b)-len(c.b))
		c.b = append(c.b, s[:n]...)
		if s = s[n:]; s == "" {
			return
		}
		c.flush()
	}
}

// digest writes the digest of something of its own.
func (c *canon) digest(d *[sha256.Size]byte) { c.b = append(c.room(len(d)), d[:]...) }

// room makes room for n bytes, so that the buffer never grows.
func (c *canon) room(n int) []byte {
	if cap(c.b)-len(c.b) < n {
		c.flush()
	}
	return c.b
}

func (c *canon) flush() {
	c.h.Write(c.b)
	c.b = c.b[:0]
}

// sum gives the digest and begins anew.
func (c *canon) sum() [sha256.Size]byte {
	c.flush()
	d := [sha256.Size]byte(c.h.Sum(c.b)) // c.b has room for it, so nothing is allocated
	c.h.Reset()
	return d
}

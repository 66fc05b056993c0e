package policy

import (
	"bufio"
	"crypto/sha256"
	"io"
	"strings"
)

// multipartSum digests a body of multipart/form-data (RFC 7578) by its parts: each
// with every field of its header, which say its name, file name and type, and its
// content. The boundary does not count. Parts without a file name are free in their
// order as the fields of a form are (fieldList.write), but a file keeps its place: it
// counts which fields and files stand before it, because a server that takes the
// body as it comes knows only those (S3 ignores fields behind the file).
//
// ok is false for what is not such a body by the letter, and for what servers read
// in different ways: text before the first boundary or behind the last, line ends
// that are not CRLF, the boundary anywhere but between parts, a header with folded
// lines or a field twice, a part that is not form-data with one name, transfer
// encodings, parts within a part, and more parts than maxFields.
//
// What is hashed, scheme multipart1: for each file a field list of what stands
// before it, F, and the digest of the file; then a field list of the rest, and E.
// The digest of a part is SHA-256 over the number of its header's fields, the fields
// sorted (the name in lower case, and the value), and SHA-256 over its content.
func multipartSum(body io.Reader, boundary string, ignore *ignored) (sum [sha256.Size]byte, ok bool) {
	if !plainBoundary(boundary) {
		return sum, false
	}
	p := &partReader{r: bufio.NewReaderSize(body, 32<<10), delimiter: []byte("--" + boundary)}
	if !p.begin() {
		return sum, false
	}
	c, digest, content := newCanon(), newCanon(), sha256.New()
	var fields fieldList
	for n := 0; !p.last; n++ {
		h, ok := p.header()
		if !ok || n == maxFields || !p.content(content) {
			return sum, false
		}
		digest.number(uint64(len(h.fields)))
		for _, f := range h.fields {
			digest.text(f.name)
			digest.text(f.value)
		}
		inner := [sha256.Size]byte(content.Sum(nil))
		content.Reset()
		digest.digest(&inner)
		part := formField{h.name, digest.sum()}
		switch {
		case ignore.at(h.name).all():
		case h.file:
			fields.write(c)
			fields = nil
			c.kind('F')
			c.digest(&part.sum)
		default:
			fields = append(fields, part)
		}
	}
	fields.write(c)
	c.kind('E')
	return c.sum(), true
}

// plainBoundary reports whether b is a boundary of RFC 2046, section 5.1.1, without
// spaces, which not everybody keeps.
func plainBoundary(b string) bool {
	for i := range len(b) {
		if !alphanumeric(b[i]) && strings.IndexByte("'()+_,-./:=?", b[i]) < 0 {
			return false
		}
	}
	return b != "" && len(b) <= 70
}

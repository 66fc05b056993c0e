package policy

import (
	"crypto/sha256"
	"io"
	"strings"
)

// chosenForm is the form in which the route wants the body of a request to be
// read. What the body itself makes of that: parsedSum.
func chosenForm(route *Route, req *Request) BodyKind {
	if kind := route.Fingerprint.Body; kind != BodyAuto {
		return kind
	}
	mt, ok := contentType(req)
	if !ok || !mt.utf8() {
		return BodyRaw
	}
	switch {
	case mt.name == "application/json", strings.HasSuffix(mt.name, "+json"):
		return BodyJSON
	case mt.name == typeForm:
		return BodyForm
	case mt.name == typeMultipart:
		return BodyMultipart
	}
	return BodyRaw
}

const (
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
)

// parsedSum digests what a body means: equal for two bodies only if they mean the
// same in this form, after what the route ignores was left out. ok is false
// wherever there is a doubt: a body that is not of this form by the letter, one
// that servers read in different ways, a content coding that is not known here, or
// more of it than the route's limits allow. The error is the one of reading it.
//
// The Content-Type does not decide whether a body is JSON: the text does. It does
// for a form, because nearly every text can be read as one.
func parsedSum(form BodyKind, route *Route, req *Request, body Body) (sum [sha256.Size]byte, ok bool, err error) {
	limit := route.Limits.Parse
	var boundary string
	switch form {
	case BodyForm:
		if len(req.Header["Content-Type"]) > 0 {
			if mt, ok := contentType(req); !ok || mt.name != typeForm || !mt.utf8() {
				return sum, false, nil
			}
		}
	case BodyMultipart:
		mt, ok := contentType(req)
		if !ok || mt.name != typeMultipart || !mt.utf8() {
			return sum, false, nil
		}
		if boundary, ok = mt.param("boundary"); !ok {
			return sum, false, nil
		}
		// Its contents are hashed as they pass, not held.
		limit = route.Limits.Request
	}
	src := &source{r: strings.NewReader("")}
	if body.Open != nil {
		src.r = body.Open()
	}
	if r, fits := decoded(src, body.Len, req.sent("Content-Encoding"), limit); fits {
		if form == BodyMultipart {
			sum, ok = multipartSum(r, boundary, route.Fingerprint.ignored)
		} else if text, whole := readText(r, min(body.Len, limit)); whole {
			if form == BodyJSON {
				sum, ok = jsonSum(text, route.Fingerprint.ignored)
			} else {
				sum, ok = formSum(text, route.Fingerprint.ignored)
			}
		}
	}
	if src.err != nil {
		return sum, false, src.err
	}
	return sum, ok, nil
}

// source tells a failure to read the body from the failure of a decoder.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// readText reads a text whole. size is what it is expected to be.
func readText(r io.Reader, size int64) (string, bool) {
	var b strings.Builder
	b.Grow(int(size))
	// Most bodies are small: they need no buffer of 32 KiB.
	_, err := io.CopyBuffer(&b, r, make([]byte, min(size+512, 32<<10)))
	return b.String(), err == nil
}

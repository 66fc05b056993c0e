package policy

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"slices"
	"strings"
)

// codings gives the content codings of a body in the order they were applied, in
// lower case. Identity is none, and x-gzip is gzip (RFC 9110, section 8.4.1).
func codings(values []string) []string {
	var list []string
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			coding := strings.Map(func(r rune) rune {
				if 'A' <= r && r <= 'Z' {
					return r + ('a' - 'A')
				}
				return r
			}, strings.Trim(part, " \t"))
			switch coding {
			case "", "identity":
			case "x-gzip":
				list = append(list, "gzip")
			default:
				list = append(list, coding)
			}
		}
	}
	return slices.Clip(list)
}

// decoded gives a reader over a body of size bytes without its content coding. Its
// error is not io.EOF where the coding is broken or what comes out is longer than
// limit. ok is false where nothing is worth reading: more than one coding, which
// could make more of itself at each step, one that is not known here, or too much.
//
// Refused is also what decoders disagree on: bytes behind the end, among them a
// second gzip member, which some read and some do not; and deflate without its zlib
// frame, which is sent by mistake and guessed at.
func decoded(body io.Reader, size int64, encoding []string, limit int64) (_ io.Reader, ok bool) {
	list := codings(encoding)
	if len(list) == 0 {
		return body, size <= limit
	}
	if len(list) > 1 {
		return nil, false
	}
	rest := bufio.NewReader(body)
	var z io.Reader
	switch list[0] {
	case "gzip":
		g, err := gzip.NewReader(rest)
		if err != nil {
			return nil, false
		}
		g.Multistream(false)
		z = g
	case "deflate":
		d, err := zlib.NewReader(rest)
		if err != nil {
			return nil, false
		}
		z = d
	default:
		return nil, false
	}
	return &bounded{z: z, rest: rest, left: limit}, true
}

var (
	errBomb     = errors.New("the decoded body is longer than is parsed")
	errTrailing = errors.New("there are bytes behind the end of the coded body")
)

// bounded is a decoder that gives at most so many bytes, and whose first error stays.
type bounded struct {
	z    io.Reader
	rest *bufio.Reader // what the decoder reads from, byte by byte
	left int64
	err  error
}

func (d *bounded) Read(b []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if int64(len(b))-1 > d.left {
		b = b[:d.left+1] // one more than allowed tells "at the limit" from "over it"
	}
	n, err := d.z.Read(b)
	if d.left -= int64(n); d.left < 0 {
		n, err = 0, errBomb
	}
	if err == io.EOF {
		if _, more := d.rest.ReadByte(); more != io.EOF {
			err = errTrailing
		}
	}
	d.err = err
	return n, err
}

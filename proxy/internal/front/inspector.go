package front

import (
	"bytes"
	"errors"
	"hash/maphash"
	"net/http"
	"sync"
)

// Inspector follows the framing of the requests on one HTTP/1 connection
// (RFC 9112). The zero value is not usable; see newInspector.
type Inspector struct {
	maxLine int

	mu    sync.Mutex
	heads []head // of requests whose handlers have not asked yet, oldest first
	state state
	line  []byte // the part of a line that came in earlier reads
	skip  int64  // what is left of the body or chunk
	cur   fields
}

// head is what is known of one request's head.
type head struct {
	line  uint64 // hash of the request line
	doubt string // why the request is refused, or ""
}

// fields are what frames a request.
type fields struct {
	begun    bool
	line     uint64
	http11   bool
	lengths  int
	length   int64
	bad      bool // a length that is no number
	encoding int
	chunked  bool
	hosts    int
	doubt    string
}

// state is what comes next on the connection.
type state uint8

const (
	inHead       state = iota // a request line or field line
	inBody                    // a body of known length
	inChunkSize               // a chunk's size line
	inChunk                   // a chunk's data
	afterChunk                // the line end behind a chunk's data
	inTrailer                 // trailer lines
	notInspected              // another protocol, or nothing that could be followed
)

// errFraming ends a connection whose framing is broken.
var errFraming = errors.New("the framing of the request is broken (RFC 9112)")

var seed = maphash.MakeSeed()

func newInspector(maxLine int) *Inspector {
	return &Inspector{maxLine: maxLine}
}

// saw takes the bytes that net/http is about to get. An error means that it must
// not get them.
func (i *Inspector) saw(b []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(b) > 0 {
		switch i.state {
		case notInspected:
			return nil
		case inBody, inChunk:
			n := min(int64(len(b)), i.skip)
			b, i.skip = b[n:], i.skip-n
			if i.skip == 0 {
				if i.state == inChunk {
					i.state = afterChunk
				} else {
					i.state = inHead
				}
			}
		default:
			end := bytes.IndexByte(b, '\n')
			if end < 0 {
				if len(i.line)+len(b) > i.maxLine {
					// net/http has a limit of its own, and answers 431 to it.
					i.state = notInspected
					return nil
				}
				i.line = append(i.line, b...)
				return nil
			}
			line := b[:end]
			if len(i.line) > 0 {
				i.line = append(i.line, line...)
				line = i.line
			}
			b = b[end+1:]
			err := i.take(line)
			i.line = i.line[:0]
			if err != nil {
				i.state = notInspected
				return err
			}
		}
	}
	return nil
}

// take takes one line without its LF.
func (i *Inspector) take(line []byte) error {
	text, crlf := bytes.CutSuffix(line, []byte("\r"))
	if i.state == inHead {
		i.headLine(text)
		return nil
	}
	if !crlf {
		return errFraming
	}
	switch i.state {
	case inChunkSize:
		size, ok := chunkSize(text)
		if !ok {
			return errFraming
		}
		if i.skip = size; size == 0 {
			i.state = inTrailer
		} else {
			i.state = inChunk
		}
	case afterChunk:
		if len(text) > 0 {
			return errFraming
		}
		i.state = inChunkSize
	case inTrailer:
		switch {
		case len(text) == 0:
			i.state = inHead
		case text[0] == ' ' || text[0] == '\t' || bytes.IndexByte(text, ':') <= 0:
			return errFraming
		}
	}
	return nil
}

// headLine takes one line of a head.
func (i *Inspector) headLine(text []byte) {
	f := &i.cur
	switch {
	case !f.begun && len(text) == 0:
		// Empty lines before a request line: net/http decides.
	case !f.begun:
		*f = fields{begun: true, line: maphash.Bytes(seed, text), http11: bytes.HasSuffix(text, []byte(" HTTP/1.1"))}
		if bytes.HasPrefix(text, []byte("PRI * HTTP/2")) {
			i.state = notInspected
		}
	case len(text) == 0:
		i.endHead()
	default:
		f.field(text)
	}
}

// field takes one field line.
func (f *fields) field(text []byte) {
	if text[0] == ' ' || text[0] == '\t' {
		f.refuse("a header field is folded over two lines")
		return
	}
	if bytes.IndexByte(text, '\r') >= 0 || bytes.IndexByte(text, 0) >= 0 {
		f.refuse("a header field has a carriage return or a zero byte in it")
	}
	name, value, _ := bytes.Cut(text, []byte(":"))
	switch len(name) {
	case len("Host"):
		if bytes.EqualFold(name, []byte("Host")) {
			f.hosts++
		}
	case len("Content-Length"):
		if bytes.EqualFold(name, []byte("Content-Length")) {
			f.lengths++
			var ok bool
			f.length, ok = decimal(bytes.Trim(value, " \t"))
			f.bad = f.bad || !ok
		}
	case len("Transfer-Encoding"):
		if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
			f.encoding++
			f.chunked = bytes.EqualFold(bytes.Trim(value, " \t"), []byte("chunked"))
		}
	}
}

func (f *fields) refuse(why string) {
	if f.doubt == "" {
		f.doubt = why
	}
}

// endHead decides what the head frames.
func (i *Inspector) endHead() {
	f := &i.cur
	switch {
	case f.encoding > 0 && f.lengths > 0:
		f.refuse("it has both Transfer-Encoding and Content-Length")
	case f.encoding > 1 || f.encoding == 1 && (!f.chunked || !f.http11):
		f.refuse("its Transfer-Encoding is not exactly chunked, on HTTP/1.1")
	case f.lengths > 1 || f.bad:
		f.refuse("its Content-Length is repeated or is not a number")
	case f.hosts > 1:
		f.refuse("it has more than one Host")
	}
	i.heads = append(i.heads, head{f.line, f.doubt})
	switch {
	case f.doubt != "":
		// The handler refuses it and closes: what follows is nobody's request.
		i.state = notInspected
	case f.encoding > 0:
		i.state = inChunkSize
	case f.length > 0:
		i.state, i.skip = inBody, f.length
	}
	i.cur = fields{}
}

// decimal reads a Content-Length: digits only.
func decimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// chunkSize reads a chunk's size line: hexadecimal digits, and perhaps an
// extension, which nobody needs.
func chunkSize(line []byte) (int64, bool) {
	digits, _, extended := bytes.Cut(line, []byte(";"))
	if extended {
		digits = bytes.TrimRight(digits, " \t")
	}
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | int64(c)
	}
	return n, true
}

// next returns what is doubtful about the request whose handler asks.
func (i *Inspector) next(r *http.Request) string {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(r.Method)
	_ = h.WriteByte(' ')
	_, _ = h.WriteString(r.RequestURI)
	_ = h.WriteByte(' ')
	_, _ = h.WriteString(r.Proto)

	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.heads) == 0 || i.heads[0].line != h.Sum64() {
		return "its framing could not be followed"
	}
	doubt := i.heads[0].doubt
	i.heads = i.heads[:copy(i.heads, i.heads[1:])]
	return doubt
}

// stop ends the inspection: the connection is about to speak another protocol.
func (i *Inspector) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state, i.line = notInspected, nil
}

package policy

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxPartHeader bounds the header of one part, in bytes. It belongs to the scheme.
const maxPartHeader = 16 << 10

// partReader cuts a multipart body into its parts. Its methods return false at the
// first doubt. mime/multipart is not strict enough for this: it skips what stands
// around the parts, takes bare line feeds, and unfolds and merges header lines.
type partReader struct {
	r         *bufio.Reader // its buffer holds more than two delimiters
	delimiter []byte        // "--" and the boundary
	last      bool          // the last part was read, and nothing is behind it
}

// partHeader is what stands before a part's content.
type partHeader struct {
	name   string
	file   bool        // it has a file name, perhaps an empty one
	fields []parameter // sorted; names in lower case
}

// begin reads the first boundary, before which nothing may stand.
func (p *partReader) begin() bool {
	first, err := p.r.Peek(len(p.delimiter))
	if err != nil || !bytes.Equal(first, p.delimiter) {
		return false
	}
	p.r.Discard(len(first))
	return p.delimited() && !p.last
}

// delimited reads what stands behind a boundary: a line end, or two hyphens where it
// is the last one, and then nothing more than a line end.
func (p *partReader) delimited() bool {
	end, err := p.r.Peek(2)
	if err != nil {
		return false
	}
	p.last = string(end) == "--"
	if !p.last && string(end) != "\r\n" {
		return false
	}
	p.r.Discard(2)
	if !p.last {
		return true
	}
	rest, err := p.r.Peek(3)
	return err == io.EOF && (len(rest) == 0 || string(rest) == "\r\n")
}

// header reads a part's header with the empty line that ends it.
func (p *partReader) header() (h partHeader, ok bool) {
	for size := 0; ; {
		line, ok := p.line()
		if size += len(line) + len("\r\n"); !ok || size > maxPartHeader {
			return h, false
		}
		if line == "" {
			break
		}
		name, value, found := strings.Cut(line, ":")
		if !found || !isToken(name) {
			return h, false
		}
		h.fields = append(h.fields, parameter{strings.ToLower(name), strings.Trim(value, " \t")})
	}
	slices.SortFunc(h.fields, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	named := false
	for i, f := range h.fields {
		if i > 0 && f.name == h.fields[i-1].name {
			return h, false
		}
		switch f.name {
		case "content-disposition":
			if h.name, h.file, named = disposition(f.value); !named {
				return h, false
			}
		case "content-transfer-encoding":
			if !equalFold(f.value, "binary") && !equalFold(f.value, "8bit") && !equalFold(f.value, "7bit") {
				return h, false
			}
		case "content-type":
			if strings.HasPrefix(strings.ToLower(f.value), "multipart/") {
				return h, false
			}
		}
	}
	return h, named
}

// disposition reads a Content-Disposition of form data.
func disposition(value string) (name string, file, ok bool) {
	kind, rest, more := strings.Cut(value, ";")
	params, ok := parameters(rest, more)
	if !ok || !equalFold(strings.TrimRight(kind, " \t"), "form-data") {
		return "", false, false
	}
	m := mediaType{params: params}
	name, ok = m.param("name")
	_, file = m.param("filename")
	return name, file, ok
}

// line reads one line of a header.
func (p *partReader) line() (string, bool) {
	b, err := p.r.ReadSlice('\n')
	b, ended := bytes.CutSuffix(b, []byte("\r\n"))
	if err != nil || !ended || !utf8.Valid(b) || bytes.Contains(b, p.delimiter) {
		return "", false
	}
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
	}
	return string(b), true
}

// content writes a part's content to w and reads the boundary behind it. The
// boundary's text may stand nowhere else, whatever is around it: not every server
// looks for the line ends.
func (p *partReader) content(w io.Writer) bool {
	for {
		b, err := p.r.Peek(p.r.Size())
		i := bytes.Index(b, p.delimiter)
		if i < 0 {
			if err != nil {
				return false // it ends without a boundary
			}
			// Kept back is what may be the beginning of one.
			n := len(b) - len("\r\n") - len(p.delimiter) + 1
			w.Write(b[:n])
			p.r.Discard(n)
			continue
		}
		if i < 2 || string(b[i-2:i]) != "\r\n" {
			return false
		}
		w.Write(b[:i-2])
		p.r.Discard(i + len(p.delimiter))
		return p.delimited()
	}
}

package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"time"
)

// spooled is a request body that was read whole: what is hashed is what is
// sent. It is held in memory up to a threshold and in a file without a name
// beyond it.
type spooled struct {
	mem  []byte
	file *os.File
	size int64
	sum  []byte
}

// reader returns a new reader over the whole body.
func (s *spooled) reader() io.Reader {
	if s.file != nil {
		return io.NewSectionReader(s.file, 0, s.size)
	}
	return bytes.NewReader(s.mem)
}

// close lets go of the file, if there is one.
func (s *spooled) close() {
	if s != nil && s.file != nil {
		s.file.Close()
	}
}

// errTooLarge says that the body passed its limit.
var errTooLarge = errors.New("the body is over the limit")

// spoolError is a failure of this machine, not of the client.
type spoolError struct{ err error }

func (e *spoolError) Error() string { return e.err.Error() }
func (e *spoolError) Unwrap() error { return e.err }

// spool reads the body of r whole and hashes it with h. A client that dies or
// dawdles half-way leaves nothing behind: nothing was claimed yet.
func (p *Proxy) spool(w http.ResponseWriter, r *http.Request, limit int64, h hash.Hash) (*spooled, error) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return &spooled{sum: h.Sum(nil)}, nil
	}
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(p.cfg.BodyTimeout)) == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	s, err := p.read(r, limit)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(h, s.reader()); err != nil {
		s.close()
		return nil, &spoolError{err}
	}
	s.sum = h.Sum(nil)
	return s, nil
}

func (p *Proxy) read(r *http.Request, limit int64) (*spooled, error) {
	threshold := int64(p.cfg.SpoolMemory)
	if n := r.ContentLength; n >= 0 && n <= threshold {
		mem := make([]byte, n)
		if _, err := io.ReadFull(r.Body, mem); err != nil {
			return nil, err
		}
		if len(r.Trailer) > 0 {
			// HTTP/2 has trailers behind a body of known length; they are there once
			// its end was read.
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
		}
		return &spooled{mem: mem, size: n}, nil
	}
	// One byte more than allowed tells "at the limit" from "over it".
	body := io.LimitReader(r.Body, limit+1)
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(body, threshold+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, errTooLarge
	}
	if n <= threshold {
		return &spooled{mem: buf.Bytes(), size: n}, nil
	}
	return p.spill(&buf, body, limit)
}

// spill moves what was read, and the rest, to a file that has no name: no crash
// leaves it behind.
func (p *Proxy) spill(head *bytes.Buffer, rest io.Reader, limit int64) (_ *spooled, err error) {
	f, err := os.CreateTemp(p.cfg.SpoolDir, "fencepost-body-")
	if err != nil {
		return nil, &spoolError{fmt.Errorf("cannot spool a request body of more than %d bytes: %w", head.Len()-1, err)}
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return nil, &spoolError{err}
	}
	size, err := head.WriteTo(f)
	if err != nil {
		return nil, &spoolError{err}
	}
	fw := &fileWriter{f: f}
	n, err := io.Copy(fw, rest)
	size += n
	switch {
	case fw.err != nil:
		return nil, &spoolError{fw.err}
	case err != nil:
		return nil, err
	case size > limit:
		return nil, errTooLarge
	}
	return &spooled{file: f, size: size}, nil
}

// fileWriter remembers that it was the file that failed, not the client.
type fileWriter struct {
	f   *os.File
	err error
}

func (w *fileWriter) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	if err != nil {
		w.err = err
	}
	return n, err
}

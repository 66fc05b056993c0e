package upstream

import (
	"encoding/binary"
	"math"
	"sync/atomic"
)

// mux is what is noted of the HTTP/2 frames of one connection: just enough to tell
// whether a GOAWAY speaks of a given request. net/http keeps that to itself.
type mux struct {
	in, out frames

	// opened is the highest stream whose HEADERS were handed to the connection, and
	// claimed the highest that was taken to be some request's. net/http writes
	// HEADERS, and reports it, under one lock, so the two tell whose stream it is.
	opened, claimed atomic.Uint32

	greeted      bool          // the peer's first frame was read; owned by Read
	foreign      bool          // it was no SETTINGS: this is not HTTP/2; owned by Read
	announced    bool          // settled has said so; owned by Read
	lastAccepted atomic.Uint32 // lowest last stream of a GOAWAY; MaxUint32 before
	reads        atomic.Uint64 // how often the peer was heard
}

// multiplex makes the wire an HTTP/2 one. It is called before anything is written.
func (w *wire) multiplex() {
	w.mux = &mux{}
	w.mux.out.skip = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	w.mux.lastAccepted.Store(math.MaxUint32)
	w.quiet.Store(false)
}

const (
	frameHeaders  = 0x1
	frameSettings = 0x4
	frameGoAway   = 0x7
)

// said notes frames before they are written.
func (m *mux) said(p []byte) {
	m.out.scan(p, func(kind byte, stream, _ uint32) {
		if kind == frameHeaders {
			m.opened.Store(max(m.opened.Load(), stream)) // trailers are HEADERS too
		}
	})
}

// heard notes frames that arrived, and reports whether there was a GOAWAY.
func (m *mux) heard(p []byte) (goAway bool) {
	m.reads.Add(1)
	m.in.scan(p, func(kind byte, stream, last uint32) {
		if !m.greeted {
			m.greeted, m.foreign = true, kind != frameSettings
		}
		if kind == frameGoAway && stream == 0 && !m.foreign {
			goAway = true
			m.lastAccepted.Store(min(m.lastAccepted.Load(), last))
		}
	})
	return goAway
}

// settled reports, once, that net/http has dealt with the peer's first frame, its
// SETTINGS: it has, when it asks for more bytes.
func (m *mux) settled() bool {
	if m.announced || !m.greeted {
		return false
	}
	m.announced = true
	return true
}

// claim returns the stream that was opened since the last claim, or 0 if none was.
// It is called from net/http's WroteHeaders, under the lock for writing.
func (m *mux) claim() uint32 {
	stream := m.opened.Load()
	if stream == m.claimed.Swap(stream) {
		return 0
	}
	return stream
}

// frames finds the frames in one direction of an HTTP/2 connection, however the
// bytes are cut.
type frames struct {
	buf  [9 + 4]byte // a frame's header, and a GOAWAY's first four bytes
	have int
	skip int // bytes of payload to pass over
}

// scan calls see for each frame. last is a GOAWAY's last stream; with any other
// frame, or a GOAWAY that is too short, it is MaxUint32.
func (f *frames) scan(p []byte, see func(kind byte, stream, last uint32)) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
			continue
		}
		want := 9
		if f.have >= 9 {
			want = len(f.buf)
		}
		n := copy(f.buf[f.have:want], p)
		f.have += n
		p = p[n:]
		if f.have < want {
			return
		}
		length := int(f.buf[0])<<16 | int(f.buf[1])<<8 | int(f.buf[2])
		if f.buf[3] == frameGoAway && length >= 8 && f.have == 9 {
			continue // its last stream comes next
		}
		const bits31 = 1<<31 - 1
		last := uint32(math.MaxUint32)
		if f.have > 9 {
			last = binary.BigEndian.Uint32(f.buf[9:]) & bits31
		}
		see(f.buf[3], binary.BigEndian.Uint32(f.buf[5:])&bits31, last)
		f.skip = length - (f.have - 9)
		f.have = 0
	}
}

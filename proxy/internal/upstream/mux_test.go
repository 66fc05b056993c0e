package upstream

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2/hpack"
)

// Error codes of RFC 9113 section 7.
const (
	codeNo              = 0x0
	codeProtocol        = 0x1
	codeInternal        = 0x2
	codeRefusedStream   = 0x7
	codeCancel          = 0x8
	codeEnhanceYourCalm = 0xb
)

// muxed is the HTTP/2 side of a peer's connection: just enough of RFC 9113 to be
// wrong in every way that a test asks for.
type muxed struct {
	line *line
	mu   sync.Mutex // guards writing
	hbuf bytes.Buffer
	enc  *hpack.Encoder
	dec  *hpack.Decoder
	last uint32 // of the last GOAWAY: higher streams are ignored; guarded by mu

	accepted uint32 // the highest stream that was delivered
}

func (m *muxed) frame(kind, flags byte, stream uint32, payload []byte) {
	b := make([]byte, 9, 9+len(payload))
	binary.BigEndian.PutUint32(b, uint32(len(payload))<<8|uint32(kind))
	b[4] = flags
	binary.BigEndian.PutUint32(b[5:], stream)
	m.line.conn.Write(append(b, payload...))
}

func (m *muxed) write(kind, flags byte, stream uint32, payload ...uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b []byte
	for _, v := range payload {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	m.frame(kind, flags, stream, b)
}

func (m *muxed) rst(stream, code uint32) { m.write(3, 0, stream, code) }

func (m *muxed) goAway(last, code uint32) {
	m.mu.Lock()
	m.last = min(m.last, last)
	m.mu.Unlock()
	m.write(frameGoAway, 0, 0, last, code)
}

func (m *muxed) ignores(stream uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return stream > m.last
}

func (m *muxed) headers(stream uint32, status int, head string, end bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hbuf.Reset()
	m.enc.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
	for l := range strings.Lines(head) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), ": ")
		m.enc.WriteField(hpack.HeaderField{Name: strings.ToLower(name), Value: value})
	}
	m.frame(frameHeaders, 4|endStream(end), stream, m.hbuf.Bytes())
}

func (m *muxed) data(stream uint32, body string, end bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frame(0, endStream(end), stream, []byte(body))
}

func (m *muxed) respond(stream uint32, status int, head, body string) {
	m.headers(stream, status, head, body == "")
	if body != "" {
		m.data(stream, body, true)
	}
}

func endStream(end bool) byte {
	if end {
		return 1
	}
	return 0
}

// serveMux reads frames until the connection ends.
func (l *line) serveMux() {
	p := l.peer
	m := &muxed{line: l, last: 1<<31 - 1}
	m.enc = hpack.NewEncoder(&m.hbuf)
	m.dec = hpack.NewDecoder(4096, nil)

	if _, err := io.ReadFull(l.in, make([]byte, 24)); err != nil {
		return // the preface
	}
	if p.settings != nil {
		p.settings()
	}
	m.mu.Lock()
	var settings []byte
	if p.streams > 0 {
		settings = binary.BigEndian.AppendUint32([]byte{0, 3}, p.streams)
	}
	m.frame(4, 0, 0, settings)
	m.mu.Unlock()
	p.mu.Lock()
	l.muxed = m
	p.mu.Unlock()

	open := make(map[uint32]*exchange)
	for {
		var head [9]byte
		if _, err := io.ReadFull(l.in, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(l.in, payload); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch kind {
		case 4: // SETTINGS
			if flags&1 == 0 {
				m.write(4, 1, 0)
			}
		case 6: // PING
			if flags&1 == 0 {
				m.mu.Lock()
				m.frame(6, 1, 0, payload)
				m.mu.Unlock()
			}
		case 3: // RST_STREAM
			delete(open, stream)
		case frameHeaders:
			if flags&4 == 0 || flags&(8|32) != 0 {
				panic("the test peer expects one plain HEADERS frame")
			}
			fields, err := m.dec.DecodeFull(payload)
			if err != nil {
				panic(err)
			}
			req := &http.Request{Header: make(http.Header)}
			for _, f := range fields {
				switch f.Name {
				case ":method":
					req.Method = f.Value
				case ":scheme", ":path":
				case ":authority":
					req.Host = f.Value
				default:
					req.Header.Add(f.Name, f.Value)
				}
			}
			if m.ignores(stream) {
				continue
			}
			x := &exchange{line: l, stream: stream, req: req, key: keyOf(req.Header)}
			if !x.warm() && p.head != nil && !p.head(x) {
				continue // the rest of the stream is ignored
			}
			open[stream] = x
		case 0: // DATA: give back the window
			if n := uint32(len(payload)); n > 0 {
				m.write(8, 0, 0, n)
				m.write(8, 0, stream, n)
			}
		}
		if x := open[stream]; x != nil && (kind == 0 || kind == frameHeaders) && flags&1 != 0 {
			delete(open, stream)
			if !m.ignores(stream) {
				x.complete()
				m.accepted = max(m.accepted, stream)
			}
		}
	}
}

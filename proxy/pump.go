package proxy

import (
	"errors"
	"io"
	"sync"
	"time"
)

// errSlow says that an answer has not come to its end within the patience.
var errSlow = errors.New("the answer is not complete yet")

// pump reads an answer of undeclared length beside the exchange, so that the
// exchange can stop waiting for its end and let it flow: nothing in such an
// answer's header tells a page that is made at once from a model that thinks
// between two words.
type pump struct {
	body  io.ReadCloser
	parts chan []byte
	rest  []byte
	err   error // why there are no more parts; written before parts is closed

	stop sync.Once
	done chan struct{}
}

func newPump(body io.ReadCloser) *pump {
	p := &pump{body: body, parts: make(chan []byte), done: make(chan struct{})}
	go p.run()
	return p
}

func (p *pump) run() {
	defer close(p.parts)
	for {
		buf := make([]byte, pumpPart)
		n, err := p.body.Read(buf)
		if n > 0 {
			select {
			case p.parts <- buf[:n]:
			case <-p.done:
				p.err = io.ErrClosedPipe
				return
			}
		}
		if err != nil {
			p.err = err
			return
		}
	}
}

// pumpPart is the most that is read at once.
const pumpPart = 16 << 10

// until reads what comes within patience, at most until more than limit bytes are
// there. With errOverLimit and errSlow the bytes read so far are returned; more is
// to come. Any other error means that the answer was cut short.
func (p *pump) until(limit int64, patience time.Duration) ([]byte, error) {
	t := time.NewTimer(patience)
	defer t.Stop()
	var whole []byte
	for {
		select {
		case part, more := <-p.parts:
			switch {
			case more && whole == nil:
				whole = part
			case more:
				whole = append(whole, part...)
			case p.err == io.EOF:
				return whole, nil
			default:
				return nil, p.err
			}
			if int64(len(whole)) > limit {
				return whole, errOverLimit
			}
		case <-t.C:
			return whole, errSlow
		}
	}
}

// Read gives what comes next.
func (p *pump) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		part, more := <-p.parts
		if !more {
			return 0, p.err
		}
		p.rest = part
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Close ends the answer, wherever it is.
func (p *pump) Close() error {
	p.stop.Do(func() { close(p.done) })
	return p.body.Close()
}

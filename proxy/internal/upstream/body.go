package upstream

import "io"

// body is a response's body that gives the connection back at its end.
//
// net/http returns io.EOF from an HTTP/1.1 body only after it has made the
// connection available again, or while it is closing it. Which of the two is found
// out by wire.settled, before the next use.
type body struct {
	io.ReadCloser
	conn *Conn
	keep bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.conn.over(b.keep && err == io.EOF)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.conn.over(false) // before the end: the rest of the answer is still to come
	return err
}

package proxy

import "sync"

// bufferSize is how much of a body is copied at a time.
const bufferSize = 32 << 10

// buffers lends copy buffers.
type buffers struct{ pool sync.Pool }

// Get returns a buffer of bufferSize bytes.
func (b *buffers) Get() []byte {
	if v, ok := b.pool.Get().(*[]byte); ok {
		return *v
	}
	return make([]byte, bufferSize)
}

// Put takes a buffer back.
func (b *buffers) Put(v []byte) { b.pool.Put(&v) }

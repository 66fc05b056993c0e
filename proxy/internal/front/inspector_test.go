package front

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// seen is what an inspector made of some bytes.
func seen(reads ...[]byte) string {
	i := newInspector(1 << 10)
	for _, b := range reads {
		if err := i.saw(b); err != nil {
			// What follows is not read any more.
			return fmt.Sprint(i.heads, " ended")
		}
	}
	return fmt.Sprint(i.heads, i.state, i.skip, len(i.line), i.cur.begun)
}

func TestEachRequestGetsItsOwnDoubt(t *testing.T) {
	i := newInspector(1 << 10)
	if err := i.saw([]byte("GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhiGET /c HTTP/1.1\r\nA: b\r\n c\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ method, uri, doubt string }{
		{"GET", "/a", ""}, {"POST", "/b", ""}, {"GET", "/c", "a header field is folded over two lines"},
		{"GET", "/d", "its framing could not be followed"},
	} {
		if got := i.next(&http.Request{Method: want.method, RequestURI: want.uri, Proto: "HTTP/1.1"}); got != want.doubt {
			t.Errorf("%s: %q, want %q", want.uri, got, want.doubt)
		}
	}
}

func TestARequestThatTheInspectorDidNotSeeIsDoubtful(t *testing.T) {
	i := newInspector(1 << 10)
	if err := i.saw([]byte("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if got := i.next(&http.Request{Method: "POST", RequestURI: "/a", Proto: "HTTP/1.1"}); got == "" {
		t.Error("another request than the one that was seen passes")
	}
}

func TestALongLineIsLeftToNetHTTP(t *testing.T) {
	i := newInspector(16)
	if err := i.saw(bytes.Repeat([]byte("a"), 1000)); err != nil || len(i.line) > 16 || i.state != notInspected {
		t.Errorf("%v, %d bytes kept", err, len(i.line))
	}
}

// FuzzInspectorIgnoresReadBorders: where reads happen to end must not change what
// is seen.
func FuzzInspectorIgnoresReadBorders(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.1\nHost: x\n\n", "\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", strings.Repeat("x", 1100) + "\n",
	} {
		f.Add([]byte(s), 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 1 {
			size = 1
		}
		var reads [][]byte
		for rest := b; len(rest) > 0; {
			n := min(size, len(rest))
			reads = append(reads, rest[:n])
			rest = rest[n:]
		}
		whole, parts := seen(b), seen(reads...)
		long := false
		for _, line := range bytes.Split(b, []byte("\n")) {
			long = long || len(line) > 1<<10
		}
		if whole != parts && !long {
			t.Errorf("in one read %s, in reads of %d bytes %s", whole, size, parts)
		}
	})
}

func BenchmarkInspector(b *testing.B) {
	req := []byte("POST /v1/charges HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 18\r\nAuthorization: Bearer sk_test_0123456789\r\nContent-Type: application/json\r\nIdempotency-Key: 01234567-89ab-cdef-0123-456789abcdef\r\nAccept-Encoding: gzip\r\n\r\n{\"amount\": 100000}")
	r := &http.Request{Method: "POST", RequestURI: "/v1/charges", Proto: "HTTP/1.1"}
	i := newInspector(1 << 16)
	b.ReportAllocs()
	for b.Loop() {
		if err := i.saw(req); err != nil || i.next(r) != "" {
			b.Fatal(err)
		}
	}
}

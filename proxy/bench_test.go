package proxy

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strconv"
	"testing"

	"fencepost/keystore/storetest"
	"fencepost/policy"
)

// sink is a ResponseWriter that keeps nothing.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

var benchBody = []byte(`{"amount":1999,"currency":"usd","source":"tok_visa","description":"order 4711"}`)

func benchRequest(method, key string) *http.Request {
	r := httptest.NewRequest(method, "http://front.test/v1/charges", bytes.NewReader(benchBody))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "bench/1")
	r.Header.Set("Accept", "*/*")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

func benchProxy(b *testing.B) (*Proxy, *storetest.Fake, string) {
	answer := bytes.Repeat([]byte("x"), 200)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.Write(answer)
	}))
	b.Cleanup(up.Close)
	fake := storetest.NewTickingFake()
	p, err := New(Config{
		Ledger: fake, Logger: slog.New(slog.NewJSONHandler(io.Discard, nil)),
		Rules: Rules{Routes: table(b, policy.Route{Name: "all", Upstream: mustURL(b, up.URL), Enforce: true})},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.kill(errShutdown); p.running.Wait() })
	return p, fake, up.URL
}

// trips reports how often the store was asked per operation.
func trips(b *testing.B, fake *storetest.Fake, before int) {
	n := -before
	for _, c := range fake.Calls() {
		n += c
	}
	b.ReportMetric(float64(n)/float64(b.N), "store-calls/op")
}

func BenchmarkFirst(b *testing.B) {
	p, fake, _ := benchProxy(b)
	b.ReportAllocs()
	for i := range b.N {
		p.ServeHTTP(&sink{make(http.Header)}, benchRequest("POST", fmt.Sprint("k", i)))
	}
	trips(b, fake, 0)
}

func BenchmarkReplay(b *testing.B) {
	p, fake, _ := benchProxy(b)
	p.ServeHTTP(&sink{make(http.Header)}, benchRequest("POST", "k"))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		p.ServeHTTP(&sink{make(http.Header)}, benchRequest("POST", "k"))
	}
	trips(b, fake, 3)
}

func BenchmarkPass(b *testing.B) {
	p, fake, _ := benchProxy(b)
	b.ReportAllocs()
	for range b.N {
		p.ServeHTTP(&sink{make(http.Header)}, benchRequest("GET", ""))
	}
	trips(b, fake, 0)
}

// BenchmarkBare is httputil.ReverseProxy under the same load, for comparison.
func BenchmarkBare(b *testing.B) {
	_, _, up := benchProxy(b)
	u := mustURL(b, up)
	rp := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}, BufferPool: &buffers{}}
	for _, method := range []string{"GET", "POST"} {
		b.Run(method, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				rp.ServeHTTP(&sink{make(http.Header)}, benchRequest(method, ""))
			}
		})
	}
}

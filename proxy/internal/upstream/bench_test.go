package upstream

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// BenchmarkPost compares a keyed POST of 200 bytes through a Pool with the same
// through a tuned http.Transport, against a server that does almost nothing.
//
//	go test -bench Post -benchmem -count 5 ./proxy/internal/upstream/
func BenchmarkPost(b *testing.B) {
	addr := benchServer(b)
	pool := New(Options{})
	defer pool.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	defer transport.CloseIdleConnections()

	ctx := context.Background()
	for _, way := range []struct {
		name string
		send func(*http.Request) (*http.Response, error)
	}{
		{"Transport", transport.RoundTrip},
		{"Pool", func(req *http.Request) (*http.Response, error) {
			conn, err := pool.Connect(ctx, "http", addr)
			if err != nil {
				return nil, err
			}
			return conn.RoundTrip(req)
		}},
	} {
		for _, parallel := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", way.name, parallel), func(b *testing.B) {
				b.ReportAllocs()
				callers(b, parallel, func() {
					resp, err := way.send(benchRequest(addr))
					if err != nil {
						b.Error(err)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				})
			})
		}
	}
}

// callers runs f b.N times or a little more, from n goroutines.
func callers(b *testing.B, n int, f func()) {
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			for range (b.N + n - 1) / n {
				f()
			}
		})
	}
	running.Wait()
}

var benchBody = bytes.Repeat([]byte("x"), 200)

func benchRequest(addr string) *http.Request {
	req, _ := http.NewRequest("POST", "http://"+addr+"/v1/charges", bytes.NewReader(benchBody))
	req.GetBody = nil
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "k-1")
	return req
}

// benchServer answers every request of benchRequest with 200 bytes.
func benchServer(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n" + strings.Repeat("y", 200))
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					for {
						line, err := in.ReadSlice('\n')
						if err != nil {
							return
						}
						if len(line) == 2 {
							break
						}
					}
					if _, err := in.Discard(len(benchBody)); err != nil {
						return
					}
					if _, err := conn.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

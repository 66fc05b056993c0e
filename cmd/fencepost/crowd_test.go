package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestACrowdOnOneKey: 200 connections that are looked into, of either protocol, send
// the same keyed request at once. There is one effect, and each gets its answer.
func TestACrowdOnOneKey(t *testing.T) {
	t.Parallel()
	const crowd = 200
	w := newWorld(t)
	var ready sync.WaitGroup
	ready.Add(crowd)
	w.handle = func(rw http.ResponseWriter, _ *http.Request, n int) {
		ready.Wait() // the first is in flight until all have their connections
		rw.WriteHeader(http.StatusCreated)
		fmt.Fprintf(rw, "effect %d", n)
	}
	x := serveExit(t, w.intoWorld(), w.trustingWorld()+"limits: {header_timeout: 1m}\nroutes: [{name: api, match: {host: api.example.test}, timeout: 1m, duplicates: {wait: 1m}}]\n")
	proxy := &url.URL{Scheme: "http", Host: x.addr}
	var mu sync.Mutex
	answers := map[string]int{}
	var clients sync.WaitGroup
	for i := range crowd {
		clients.Go(func() {
			var once sync.Once
			connected := func() { once.Do(ready.Done) }
			defer connected() // without a connection nobody shall wait for it
			var p http.Protocols
			p.SetHTTP1(i%2 == 0)
			p.SetHTTP2(i%2 == 1)
			transport := &http.Transport{Proxy: http.ProxyURL(proxy), Protocols: &p, TLSClientConfig: &tls.Config{RootCAs: x.roots}}
			defer transport.CloseIdleConnections()
			// A body that cannot be sent again by the transport itself.
			req, err := http.NewRequest("POST", "https://api.example.test/v1/charges", struct{ io.Reader }{strings.NewReader("amount=1")})
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Idempotency-Key", "one")
			trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected() }}
			resp, err := (&http.Client{Transport: transport, Timeout: 2 * time.Minute}).Do(req.WithContext(httptrace.WithClientTrace(t.Context(), trace)))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			answers[fmt.Sprintf("HTTP/%d: %d, replayed: %v, %s", resp.ProtoMajor, resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true", body)]++
			mu.Unlock()
		})
	}
	clients.Wait()
	if n := w.effect("api.example.test", "one"); n != 1 {
		t.Errorf("%d effects", n)
	}
	of := func(protocol, replayed string) int {
		return answers["HTTP/"+protocol+": 201, replayed: "+replayed+", effect 1"]
	}
	if of("1", "true")+of("1", "false") != crowd/2 || of("2", "true")+of("2", "false") != crowd/2 || of("1", "false")+of("2", "false") != 1 {
		t.Errorf("%v", answers)
	}
	x.healthy(t)
}

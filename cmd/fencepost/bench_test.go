package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"fencepost/cmd/fencepost/internal/config"
	"fencepost/proxy"
)

// The throughput of Fencepost beside a bare httputil.ReverseProxy, on the same
// machine in the same run: clients, proxies, upstream and ledger share it.
//
//	FENCEPOST_BENCH_REDIS=redis://127.0.0.1:6379/0 \
//	go test -run '^$' -bench Throughput -benchtime 3s ./cmd/fencepost

const benchAnswer = 200 // bytes of a JSON answer

// serveOn serves h on a loopback port and returns its address.
func serveOn(b *testing.B, h http.Handler) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	b.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

func benchUpstream(b *testing.B) string {
	// An upstream that takes its time, for what Fencepost adds to a request.
	delay, _ := time.ParseDuration(os.Getenv("FENCEPOST_BENCH_DELAY"))
	answer := []byte(`{"id":"ch_1","object":"charge","pad":"` + strings.Repeat("x", benchAnswer-40) + `"}`)
	return serveOn(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		time.Sleep(delay)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.Write(answer)
	}))
}

type bufferPool struct{ sync.Pool }

func (p *bufferPool) Get() []byte  { return *p.Pool.Get().(*[]byte) }
func (p *bufferPool) Put(b []byte) { p.Pool.Put(&b) }

// bareProxy is httputil.ReverseProxy with the settings that matter.
func bareProxy(b *testing.B, upstream string) string {
	u := &url.URL{Scheme: "http", Host: upstream}
	pool := &bufferPool{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}}
	return serveOn(b, &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport:  &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
		BufferPool: pool,
	})
}

// naiveProxy is what one writes in an hour: SET NX, forward, SET the answer. It
// compares no payload, and a lost answer blocks its key; it is here to be
// compared with.
func naiveProxy(b *testing.B, upstream, redisURL string) string {
	o, err := redis.ParseURL(redisURL)
	if err != nil {
		b.Fatal(err)
	}
	rdb := redis.NewClient(o)
	b.Cleanup(func() { rdb.Close() })
	u := &url.URL{Scheme: "http", Host: upstream}
	rp := &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport:  &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
		BufferPool: &bufferPool{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}},
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			return rdb.Set(r.Request.Context(), "naive:"+r.Request.Header.Get("Idempotency-Key"), body, time.Hour).Err()
		},
	}
	return serveOn(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := "naive:" + r.Header.Get("Idempotency-Key")
		fresh, err := rdb.SetNX(r.Context(), key, "", time.Hour).Result()
		if err != nil {
			w.WriteHeader(503)
			return
		}
		if fresh {
			rp.ServeHTTP(w, r)
			return
		}
		body, err := rdb.Get(r.Context(), key).Bytes()
		if err != nil || len(body) == 0 {
			w.WriteHeader(409)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	}))
}

// fencepost runs the product in front of upstream.
func fencepost(b *testing.B, upstream, ledger string) string {
	c, err := config.FromFlags("http://" + upstream)
	if err != nil {
		b.Fatal(err)
	}
	c.Ledger.URL = config.Secret(ledger)
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	rules, err := rulesOf(c)
	if err != nil {
		b.Fatal(err)
	}
	store, err := openLedger(context.Background(), c, log)
	if err != nil {
		b.Fatal(err)
	}
	pc, err := proxyConfig(c, rules, store, proxy.NewInstance(), log)
	if err != nil {
		b.Fatal(err)
	}
	p, err := proxy.New(pc)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		p.Shutdown(context.Background())
		store.Close()
	})
	s, err := proxy.NewServer(p, serverOptions(c, log))
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go s.Serve(l)
	b.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// drive sends b.N requests over n connections and waits for the answers. The
// client is as small as it can be: what is measured is the proxy.
func drive(b *testing.B, addr string, n int, request func(buf *bytes.Buffer, i int64)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		conns[i] = c
		defer c.Close()
	}
	lat := make([][]time.Duration, n)
	b.ResetTimer()
	for w, c := range conns {
		wg.Go(func() {
			in := bufio.NewReader(c)
			var buf bytes.Buffer
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				buf.Reset()
				request(&buf, i)
				start := time.Now()
				if _, err := c.Write(buf.Bytes()); err != nil {
					b.Error(err)
					return
				}
				if err := skipAnswer(in); err != nil {
					b.Error(err)
					return
				}
				lat[w] = append(lat[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(percentile(lat, .5).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(percentile(lat, .99).Microseconds())/1000, "p99-ms")
}

func percentile(lat [][]time.Duration, q float64) time.Duration {
	var all []time.Duration
	for _, l := range lat {
		all = append(all, l...)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(float64(len(all)-1)*q)]
}

// skipAnswer reads one 200 answer with a Content-Length.
func skipAnswer(in *bufio.Reader) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("got %q", line)
	}
	length := -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	if length < 0 {
		return fmt.Errorf("no Content-Length")
	}
	_, err = in.Discard(length)
	return err
}

const benchBody = `{"amount":1999,"currency":"usd","source":"tok_visa","description":"order 4711"}`

func get(buf *bytes.Buffer, _ int64) { buf.WriteString("GET /v1/charges HTTP/1.1\r\nHost: x\r\n\r\n") }

func post(run string) func(*bytes.Buffer, int64) {
	return func(buf *bytes.Buffer, i int64) {
		fmt.Fprintf(buf, "POST /v1/charges HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: %s-%d\r\nContent-Length: %d\r\n\r\n%s", run, i, len(benchBody), benchBody)
	}
}

func BenchmarkThroughput(b *testing.B) {
	ledgers := map[string]func(b *testing.B) string{
		"sqlite": func(b *testing.B) string { return "sqlite://" + filepath.Join(b.TempDir(), "bench.db") },
	}
	if u := os.Getenv("FENCEPOST_BENCH_REDIS"); u != "" {
		ledgers["redis"] = func(*testing.B) string { return u }
	}
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("get/bare/%d", clients), func(b *testing.B) { drive(b, bareProxy(b, benchUpstream(b)), clients, get) })
		b.Run(fmt.Sprintf("get/fencepost/%d", clients), func(b *testing.B) {
			drive(b, fencepost(b, benchUpstream(b), ledgers["sqlite"](b)), clients, get)
		})
		b.Run(fmt.Sprintf("post/bare/%d", clients), func(b *testing.B) { drive(b, bareProxy(b, benchUpstream(b)), clients, post("bare")) })
		if u := os.Getenv("FENCEPOST_BENCH_REDIS"); u != "" {
			b.Run(fmt.Sprintf("first/naive/%d", clients), func(b *testing.B) {
				drive(b, naiveProxy(b, benchUpstream(b), u), clients, post(fmt.Sprint("first", time.Now().UnixNano())))
			})
			b.Run(fmt.Sprintf("replay/naive/%d", clients), func(b *testing.B) {
				addr := naiveProxy(b, benchUpstream(b), u)
				one := post(fmt.Sprint("replay", time.Now().UnixNano()))
				warm(b, addr, one)
				drive(b, addr, clients, func(buf *bytes.Buffer, i int64) { one(buf, i%512) })
			})
		}
		for name, ledger := range ledgers {
			b.Run(fmt.Sprintf("first/%s/%d", name, clients), func(b *testing.B) {
				drive(b, fencepost(b, benchUpstream(b), ledger(b)), clients, post(fmt.Sprint("first", time.Now().UnixNano())))
			})
			b.Run(fmt.Sprintf("replay/%s/%d", name, clients), func(b *testing.B) {
				addr := fencepost(b, benchUpstream(b), ledger(b))
				one := post(fmt.Sprint("replay", time.Now().UnixNano()))
				warm(b, addr, one)
				drive(b, addr, clients, func(buf *bytes.Buffer, i int64) { one(buf, i%512) })
			})
		}
	}
}

// warm sends the 512 first requests that a replay benchmark repeats.
func warm(b *testing.B, addr string, request func(*bytes.Buffer, int64)) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	var buf bytes.Buffer
	for i := range int64(512) {
		buf.Reset()
		request(&buf, i)
		if _, err := c.Write(buf.Bytes()); err != nil {
			b.Fatal(err)
		}
		if err := skipAnswer(in); err != nil {
			b.Fatal(err)
		}
	}
}

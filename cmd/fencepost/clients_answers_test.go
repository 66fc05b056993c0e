package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
)

// TestEachClientGetsTheFirstAnswerTwice: every kind of request and answer that
// httpbin knows goes through once and is replayed byte for byte.
func TestEachClientGetsTheFirstAnswerTwice(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	binary := make([]byte, 1<<20)
	for i := range binary {
		binary[i] = byte(i * i >> 3)
	}
	rows := []struct {
		law, path, kind string
		body            []byte
		status          int
		field, value    string // an answer's field that has to arrive
	}{
		{"JSON", "/anything/json?a=1&b=%20", "application/json", []byte(`{"amount": 1, "note": "<&>é"}`), 200, "Content-Type", "application/json; charset=utf-8"},
		{"a form", "/anything/form", "application/x-www-form-urlencoded", []byte("amount=1&note=%C3%A9+x"), 200, "", ""},
		{"a multipart body with a boundary of its own", "/anything/multipart", "multipart/form-data; boundary=x", []byte("--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n"), 200, "", ""},
		{"an empty body", "/anything/empty", "text/plain", nil, 200, "", ""},
		{"1 MiB of bytes", "/anything/binary", "application/octet-stream", binary, 200, "", ""},
		{"a compressed answer", "/gzip", "text/plain", []byte("x"), 200, "", ""},
		{"a refusal", "/status/418", "text/plain", []byte("x"), 418, "", ""},
		{"a redirect is not followed", "/redirect-to?url=/anything/elsewhere&status_code=302", "text/plain", []byte("x"), 302, "Location", "/anything/elsewhere"},
		{"a redirect that keeps the method is not followed", "/redirect-to?url=/anything/elsewhere&status_code=307", "text/plain", []byte("x"), 307, "Location", "/anything/elsewhere"},
		{"chunks of no announced length", "/stream-bytes/5000?seed=7&chunk_size=512", "text/plain", []byte("x"), 200, "", ""},
		{"a slow answer", "/drip?numbytes=10&duration=500ms", "text/plain", []byte("x"), 200, "", ""},
		{"an event stream", "/sse?count=3&duration=300ms&delay=0", "text/plain", []byte("x"), 200, "Content-Type", "text/event-stream; charset=utf-8"},
		{"trailers", "/trailers?X-Sum=1", "text/plain", []byte("x"), 200, "", ""},
	}
	eachClient(t, func(t *testing.T, c int, cl realClient) {
		var calls []clientCall
		for r, row := range rows {
			one := clientCall{Method: "POST", URL: p.url + row.path, Body: row.body, Headers: map[string]string{"Idempotency-Key": fmt.Sprintf("k-%d-%d", c, r), "Content-Type": row.kind, "Accept-Encoding": "gzip"}}
			calls = append(calls, one, one)
		}
		replies := cl.do(t, calls...)
		for r, row := range rows {
			key, first, again := fmt.Sprintf("k-%d-%d", c, r), replies[2*r], replies[2*r+1]
			seen := g.once(t, key)
			if seen.request != sha256.Sum256(row.body) {
				t.Errorf("%s: the server got another body", row.law)
			}
			for i, a := range []reply{first, again} {
				if a.err != nil || a.status != row.status || uncoded(t, a.body) != uncoded(t, seen.answer) {
					t.Errorf("%s: answer %d is %d %v with %d bytes, want %d with the %d of the server", row.law, i+1, a.status, a.err, len(a.body), row.status, len(seen.answer))
				}
				if a.header.Get("Idempotent-Replayed") != []string{"", "true"}[i] {
					t.Errorf("%s: answer %d has Idempotent-Replayed: %q", row.law, i+1, a.header.Get("Idempotent-Replayed"))
				}
				if row.field != "" && a.header.Get(row.field) != row.value {
					t.Errorf("%s: answer %d has %s: %q", row.law, i+1, row.field, a.header.Get(row.field))
				}
			}
			if first.body != again.body || first.header.Get("Content-Encoding") != again.header.Get("Content-Encoding") {
				t.Errorf("%s: the two answers differ", row.law)
			}
			if s := p.state(key); s != "completed" {
				t.Errorf("%s: it reads %s", row.law, s)
			}
		}
	})
}

// uncoded is a body without the gzip coding that some clients remove.
func uncoded(t *testing.T, body string) string {
	if !strings.HasPrefix(body, "\x1f\x8b") {
		return body
	}
	z, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return body
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Errorf("the compressed body is damaged: %v", err)
	}
	return string(b)
}

// TestEachClientThatGaveUpGetsTheTrueAnswer: httpbin needs two seconds, the
// client waits for one and asks again with the same key.
func TestEachClientThatGaveUpGetsTheTrueAnswer(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	eachClient(t, func(t *testing.T, i int, cl realClient) {
		key := fmt.Sprint("slow-", i)
		c := posting(p.url+"/delay/2", key, `{"a":1}`)
		c.Timeout, c.Retries = 1, 6
		r := cl.do(t, c)[0]
		seen := g.once(t, key)
		if r.err != nil || r.status != 200 || r.body != seen.answer || r.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%+v", r)
		}
	})
}

// TestCurlMakesAnotherBoundaryEachTime: so its second upload is another request
// to a route that fingerprints bytes, and the same to one that fingerprints parts.
func TestCurlMakesAnotherBoundaryEachTime(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	upload := func(p *process, key, content string) reply {
		r, _ := curl(t, []byte(content), "-H", "Idempotency-Key: "+key, "-F", "amount=1", "-F", "file=@-;filename=a.txt", p.url+"/anything")
		return r
	}
	first, again := upload(p, "k", "content"), upload(p, "k", "content")
	var got struct{ Form map[string][]string }
	if json.Unmarshal([]byte(first.body), &got) != nil || first.status != 200 || fmt.Sprint(got.Form["amount"]) != "[1]" {
		t.Errorf("%+v", first)
	}
	if again.status != 422 || again.code() != "idempotency_conflict" || !strings.Contains(again.body, `"retry":"new_key"`) {
		t.Errorf("%+v", again)
	}
	g.once(t, "k")
	p = frontOf(t, g, ", fingerprint: {body: auto}")
	first, again = upload(p, "parts", "content"), upload(p, "parts", "content")
	if first.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v", again)
	}
	if other := upload(p, "parts", "other content"); other.code() != "idempotency_conflict" {
		t.Errorf("%+v", other)
	}
	g.once(t, "parts")
}

// TestEachClientIsRefusedAnotherRequestUnderAKey by a status it takes for an
// error, at once and without a second effect.
func TestEachClientIsRefusedAnotherRequestUnderAKey(t *testing.T) {
	t.Parallel()
	g := newGateway(t, startHttpbin(t))
	p := frontOf(t, g, "")
	eachClient(t, func(t *testing.T, i int, cl realClient) {
		key := fmt.Sprint("k", i)
		body := posting(p.url+"/anything", key, `{"amount":1}`)
		amount, target, method := body, body, body
		amount.Body = bytes.Replace(body.Body, []byte("1"), []byte("2"), 1)
		target.URL += "/elsewhere"
		method.Method = "PUT"
		nokey := body
		nokey.Headers = maps.Clone(body.Headers)
		delete(nokey.Headers, "Idempotency-Key")
		want := []string{"200 ", "422 idempotency_conflict", "422 idempotency_conflict", "422 idempotency_conflict", "400 idempotency_key_required", "200 "}
		for n, r := range cl.do(t, body, amount, target, method, nokey, body) {
			if got := fmt.Sprint(r.status, " ", r.code()); r.err != nil || got != want[n] {
				t.Errorf("call %d: %s %v, want %s", n+1, got, r.err, want[n])
			}
		}
		g.once(t, key)
	})
	if n := g.of("").attempts; n != 0 {
		t.Errorf("%d requests without a key went through", n)
	}
}

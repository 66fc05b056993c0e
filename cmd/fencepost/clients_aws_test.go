package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
)

// awsSecret is the one of testdata/clients/aws.mjs.
const awsSecret = "secret"

var awsAuthorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=[^/]+/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$`)

// signedBy fails the test unless the request that arrived at the upstream bears the
// signature (AWS Signature Version 4) that its service would compute, over the Host
// that arrived too.
func signedBy(t *testing.T, p passage) {
	t.Helper()
	m := awsAuthorization.FindStringSubmatch(p.header.Get("Authorization"))
	if m == nil {
		t.Fatalf("Authorization: %q", p.header.Get("Authorization"))
	}
	day, region, service, signed, signature := m[1], m[2], m[3], m[4], m[5]
	path, query, _ := strings.Cut(p.uri, "?")
	canonical := p.method + "\n" + path + "\n" + query + "\n"
	for name := range strings.SplitSeq(signed, ";") {
		value := p.header.Get(name)
		if name == "host" {
			value = p.host
		}
		canonical += name + ":" + strings.TrimSpace(value) + "\n"
	}
	canonical += "\n" + signed + "\n" + hex.EncodeToString(p.request[:])
	sum := sha256.Sum256([]byte(canonical))
	text := "AWS4-HMAC-SHA256\n" + p.header.Get("X-Amz-Date") + "\n" + day + "/" + region + "/" + service + "/aws4_request\n" + hex.EncodeToString(sum[:])
	key := []byte("AWS4" + awsSecret)
	for _, part := range []string{day, region, service, "aws4_request", text} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	if got := hex.EncodeToString(key); got != signature {
		t.Errorf("the signature is of another request: %s, want %s for\n%s", signature, got, canonical)
	}
	if !strings.Contains(";"+signed+";", ";host;") {
		t.Errorf("the host is not signed: %s", signed)
	}
}

// TestAWSTokenTellsTwoCallsApart: under a derived key two calls with one input are
// two effects, since the SDK puts a token of each call into its body.
func TestAWSTokenTellsTwoCallsApart(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shop(t))
	g.name = callOf
	st := newStage(t, g, documented(t, g, "derived"))
	call := sdkCall{Way: "keyless", URL: st.r.URL + "/twice", Timeout: patient, Retries: 3, Order: map[string]string{"amount": "1999"}}
	for _, end := range node("aws.mjs")(t, []sdkCall{call, call}) {
		trueAnswer(t, st, "twice", end)
	}
	if seen := g.of("twice"); seen.attempts != 2 || seen.effects != 2 {
		t.Errorf("%d attempts and %d effects, want 2 and 2", seen.attempts, seen.effects)
	}
}

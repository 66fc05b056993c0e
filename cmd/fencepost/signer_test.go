package main

import (
	"crypto/tls"
	"io"
	"log"
	"testing"

	"fencepost/proxy/ca"
)

// signer vouches for every host of a test's world. It has nothing to do with the
// authority under test but the code.
type signer struct{ authority *ca.Authority }

func newSigner(t *testing.T) *signer {
	t.Helper()
	a, err := ca.Temporary(ca.Options{Host: "the world of a test"})
	if err != nil {
		t.Fatal(err)
	}
	return &signer{a}
}

func (s *signer) pem() []byte { return s.authority.PEM() }

func (s *signer) leaf(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.authority.Leaf(hello.Context(), hello.ServerName)
}

var discardLog = log.New(io.Discard, "", 0)

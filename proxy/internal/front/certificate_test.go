package front

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write makes a self-signed certificate in dir and returns its two PEM files.
func write(t *testing.T, dir, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder})
	put(t, filepath.Join(dir, "cert.pem"), cert)
	put(t, filepath.Join(dir, "key.pem"), key)
	return cert, key
}

func put(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestACertificateThatChangesIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one")
	var log strings.Builder
	c, err := LoadCertificate(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	serves := func(want string) {
		t.Helper()
		c.looked = time.Time{} // long ago
		got, err := c.Get(nil)
		if err != nil || got.Leaf.Subject.CommonName != want {
			t.Errorf("%v, %v, want %s", got.Leaf.Subject, err, want)
		}
	}
	serves("one")
	cert, key := write(t, t.TempDir(), "the second")
	put(t, filepath.Join(dir, "cert.pem"), cert)
	serves("one") // the key is not there yet
	serves("one")
	if n := strings.Count(log.String(), "the one before stays in use"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
	put(t, filepath.Join(dir, "key.pem"), key)
	serves("the second")
	os.Remove(filepath.Join(dir, "key.pem"))
	serves("the second")
}

func TestACertificateThatCannotBeUsedIsAnErrorAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "one")
	if _, err := LoadCertificate(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "none.pem"), nil); err == nil {
		t.Error("a key that is not there passes")
	}
	_, other := write(t, t.TempDir(), "other")
	put(t, filepath.Join(dir, "key.pem"), other)
	if _, err := LoadCertificate(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), nil); err == nil || !strings.Contains(err.Error(), "key.pem") {
		t.Errorf("a key of another certificate: %v", err)
	}
}

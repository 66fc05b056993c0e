package redisstore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
)

// ACL is what the package comment tells an operator to grant.
const testACL = "user fencepost on >hunter2 ~fencepost* resetchannels -@all " +
	"+evalsha +script|load +time +hmget +hget +hset +hdel +hincrby +zadd +zrem +zrangebyscore +del +sadd +smembers +wait +info"

func TestAnACLUserWithOnlyWhatIsDocumented(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte(testACL+"\nuser default on nopass ~* &* +@all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := startServer(t, "--aclfile", file)
	url := "redis://fencepost:hunter2@" + srv.addr() + "/0"
	storetest.Run(t, harness(url, nil))

	s := open(t, "redis://fencepost:wrong@"+srv.addr()+"/0")
	_, err := s.Insert(ctx(t), reserveWrite("a", "k"))
	if !errors.Is(err, keystore.ErrNotWritten) || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Fatalf("a wrong password: %v", err)
	}
	srv.do("acl", "setuser", "fencepost", "-evalsha")
	s = open(t, url)
	if _, err = s.Insert(ctx(t), reserveWrite("a", "k")); !errors.Is(err, keystore.ErrNotWritten) || !strings.Contains(err.Error(), "NOPERM") {
		t.Fatalf("a command that is not permitted: %v", err)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fencepost test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: []string{"ledger.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	cert, private := write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
	port := freePort(t)
	srv := startServer(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", cert, "--tls-key-file", private, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	roots := x509.NewCertPool()
	c, _ := x509.ParseCertificate(der)
	roots.AddCert(c)
	url := fmt.Sprintf("rediss://127.0.0.1:%d/0", port)
	_ = srv
	storetest.Run(t, harness(url, nil, func(o *Options) { o.TLS = &tls.Config{RootCAs: roots} }))

	for name, o := range map[string]func(*Options){
		"unknown authority": func(*Options) {},
		"wrong name":        func(o *Options) { o.TLS = &tls.Config{RootCAs: roots, ServerName: "elsewhere.test"} },
	} {
		s := open(t, url, o)
		if _, err := s.Insert(ctx(t), reserveWrite("a", "k")); !errors.Is(err, keystore.ErrNotWritten) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := open(t, url, func(o *Options) { o.TLS = &tls.Config{RootCAs: roots, ServerName: "ledger.test"} })
	mustInsert(t, s, reserveWrite("a", "k"))
}

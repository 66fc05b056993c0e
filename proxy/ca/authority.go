package ca

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxLeafLife is from a leaf's NotBefore to its NotAfter.
	maxLeafLife = 72 * time.Hour
	// maxLeaves bounds the leaves in memory, about 3 KiB each. It is not a limit on
	// hosts: one more makes the least recently used one go, which is then made anew.
	maxLeaves = 1024
	// warnBefore is how long before its end an authority is near expiry.
	warnBefore = 30 * 24 * time.Hour
)

// Authority signs certificates for intercepted hosts. It is safe for concurrent use.
type Authority struct {
	cert   *x509.Certificate
	key    crypto.Signer
	info   Info
	pool   *x509.CertPool
	leaves *leaves
	minted atomic.Uint64
	now    func() time.Time
}

// newAuthority takes a certificate and its key, which fit each other, and refuses
// what clients would not accept as an authority.
func newAuthority(cert *x509.Certificate, key crypto.Signer, now func() time.Time) (*Authority, error) {
	if err := checkRoot(cert); err != nil {
		return nil, err
	}
	a := &Authority{cert: cert, key: key, info: describe(cert), pool: x509.NewCertPool(), leaves: newLeaves(maxLeaves), now: now}
	a.pool.AddCert(cert)
	if err := a.checkTime(now()); err != nil {
		return nil, err
	}
	return a, nil
}

// checkRoot says why a certificate is none that a client can trust as an authority.
func checkRoot(cert *x509.Certificate) error {
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return errors.New("the certificate is not an authority's (basic constraints: CA:FALSE)")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("the certificate may not sign certificates (key usage without keyCertSign)")
	case cert.CheckSignatureFrom(cert) != nil:
		return errors.New("the certificate is not signed with its own key; clients must be able to trust it alone")
	}
	return nil
}

// ErrExpired says that an authority's time is over.
var ErrExpired = errors.New("expired")

func (a *Authority) checkTime(now time.Time) error {
	if now.After(a.cert.NotAfter) {
		return fmt.Errorf("the authority %w on %s; move its files away, make a new one with `fencepost ca init`, and give clients the new certificate", ErrExpired, date(a.cert.NotAfter))
	}
	if now.Before(a.cert.NotBefore) {
		return fmt.Errorf("the authority is not valid before %s; check this machine's clock", date(a.cert.NotBefore))
	}
	return nil
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Temporary makes an authority that lives in memory only.
func Temporary(o Options) (*Authority, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert, err := newRoot(o, key, time.Now())
	if err != nil {
		return nil, err
	}
	return newAuthority(cert, key, time.Now)
}

// Leaf returns a certificate for a DNS name or an IP address. Callers share it: they
// must not change it. It waits for another caller's mint of the same name until ctx
// ends.
func (a *Authority) Leaf(ctx context.Context, name string) (*tls.Certificate, error) {
	host, err := checkName(name)
	if err != nil {
		return nil, fmt.Errorf("no certificate for %q: %w", name, err)
	}
	now := a.now()
	cert, err := a.leaves.get(ctx, host, now, func() (*tls.Certificate, error) { return a.mint(host, now) })
	if err != nil {
		return nil, fmt.Errorf("no certificate for %q: %w", name, err)
	}
	return cert, nil
}

// mint signs a leaf.
func (a *Authority) mint(host string, now time.Time) (*tls.Certificate, error) {
	if err := a.checkTime(now); err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		NotBefore: now.Add(-skew).UTC(), NotAfter: now.Add(maxLeafLife - skew).UTC(),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if t.NotBefore.Before(a.cert.NotBefore) {
		t.NotBefore = a.cert.NotBefore
	}
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter
	}
	asked := host
	if addr, err := netip.ParseAddr(host); err == nil {
		t.IPAddresses = append(t.IPAddresses, addr.AsSlice())
		asked = "[" + host + "]"
	} else {
		t.DNSNames = []string{host}
	}
	// The common name is only for people to read: clients compare the alternative
	// names. Without one the subject is empty, and x509 marks those critical.
	if len(host) <= maxCommonName {
		t.Subject.CommonName = host
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.pool, DNSName: asked, CurrentTime: now}); err != nil {
		if len(a.info.PermitDomains) > 0 {
			return nil, fmt.Errorf("the authority is limited to %s and cannot sign for it (%w)", strings.Join(a.info.PermitDomains, ", "), err)
		}
		return nil, fmt.Errorf("clients would not accept what the authority signs for it: %w", err)
	}
	a.minted.Add(1)
	// The authority's own certificate goes along, though a client has it: one that does
	// not then reports an unknown authority by name, instead of an incomplete chain.
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// PEM returns the certificate that clients have to trust.
func (a *Authority) PEM() []byte { return certPEM(a.cert) }

func certPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// Info describes the authority.
func (a *Authority) Info() Info {
	i := a.info
	i.PermitDomains = slices.Clone(i.PermitDomains)
	return i
}

// NotAfter is when the authority ends, and with it every leaf.
func (a *Authority) NotAfter() time.Time { return a.cert.NotAfter }

// Fingerprint is the SHA-256 digest of the certificate, as openssl prints it.
func (a *Authority) Fingerprint() string { return a.info.Fingerprint }

// NearExpiry reports whether it is time to replace the authority.
func (a *Authority) NearExpiry() bool { return a.info.NearExpiry(a.now()) }

// Minted counts the leaves signed since the start.
func (a *Authority) Minted() uint64 { return a.minted.Load() }

// Info describes an authority, without anything that is secret.
type Info struct {
	Subject     string
	Serial      string // hexadecimal
	Fingerprint string // SHA-256 of the certificate: upper-case hexadecimal with colons
	NotBefore   time.Time
	NotAfter    time.Time
	// PermitDomains are the domains it is limited to; none means it may sign for every
	// host.
	PermitDomains []string
	// AddressesExcluded reports whether it may sign for no IP address.
	AddressesExcluded bool
	// CertFile and KeyFile are its files, "" for one in memory.
	CertFile, KeyFile string
}

func describe(cert *x509.Certificate) Info {
	sum := sha256.Sum256(cert.Raw)
	fingerprint := make([]string, len(sum))
	for i, b := range sum {
		fingerprint[i] = fmt.Sprintf("%02X", b)
	}
	excluded := 0
	for _, n := range cert.ExcludedIPRanges {
		if ones, bits := n.Mask.Size(); ones == 0 && bits > 0 {
			excluded |= bits
		}
	}
	return Info{
		Subject: cert.Subject.String(), Serial: cert.SerialNumber.Text(16), Fingerprint: strings.Join(fingerprint, ":"),
		NotBefore: cert.NotBefore, NotAfter: cert.NotAfter,
		PermitDomains: slices.Clone(cert.PermittedDNSDomains), AddressesExcluded: excluded == 32|128,
	}
}

// NearExpiry reports whether less than 30 days are left at an instant or, of a
// shorter life than 90 days, less than a third.
func (i Info) NearExpiry(now time.Time) bool {
	before := min(warnBefore, i.NotAfter.Sub(i.NotBefore)/3)
	return i.NotAfter.Sub(now) < before
}

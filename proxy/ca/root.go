package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Bounds of an authority's lifetime.
const (
	DefaultLifetime = 365 * 24 * time.Hour
	MinLifetime     = time.Hour
	MaxLifetime     = 10 * DefaultLifetime
)

// skew is how far behind a client's clock may be.
const skew = time.Hour

// Options are what a new authority is to be.
type Options struct {
	// PermitDomains limits the authority to these domains and what is below them, and
	// to DNS names. None: it may sign for every host.
	PermitDomains []string
	// Lifetime is how long it lasts. Default DefaultLifetime.
	Lifetime time.Duration
	// Host names the machine in the certificate's subject, so that people recognise it
	// in a trust store. Default: this machine's name.
	Host string
}

// complete returns the options with the defaults filled in, or says what is wrong.
func (o Options) complete() (Options, error) {
	if o.Lifetime == 0 {
		o.Lifetime = DefaultLifetime
	}
	if o.Lifetime < MinLifetime || o.Lifetime > MaxLifetime {
		return o, fmt.Errorf("a lifetime of %v is not between %v and %v", o.Lifetime, MinLifetime, MaxLifetime)
	}
	if o.Host == "" {
		o.Host, _ = os.Hostname() // a certificate without the machine's name works as well
	}
	permit := make([]string, 0, len(o.PermitDomains))
	for _, d := range o.PermitDomains {
		name, err := permitted(d)
		if err != nil {
			return o, err
		}
		permit = append(permit, name)
	}
	o.PermitDomains = permit
	return o, nil
}

// permitted is a domain in the form that a name constraint has.
func permitted(domain string) (string, error) {
	if bare, wild := strings.CutPrefix(domain, "*."); wild {
		return "", fmt.Errorf("cannot permit %q: write %q, which permits what is below it too", domain, bare)
	}
	name, err := checkName(domain)
	if err == nil {
		if _, aerr := netip.ParseAddr(name); aerr == nil {
			err = errors.New("it is an address; an authority that is limited signs for names only")
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot permit %q: %w", domain, err)
	}
	return name, nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// newRoot signs the certificate of an authority with its own key. o is complete.
func newRoot(o Options, key *ecdsa.PrivateKey, now time.Time) (*x509.Certificate, error) {
	t := &x509.Certificate{
		// The serial number is left to x509: 20 random bytes (RFC 5280, section 4.1.2.2).
		Subject:   subject(o.Host, now),
		NotBefore: now.Add(-skew).UTC(), NotAfter: now.Add(o.Lifetime).UTC(),
		BasicConstraintsValid: true, IsCA: true,
		MaxPathLenZero: true, // it signs leaves and no other authority
		KeyUsage:       x509.KeyUsageCertSign,
	}
	if len(o.PermitDomains) > 0 {
		t.PermittedDNSDomainsCritical = true
		t.PermittedDNSDomains = o.PermitDomains
		t.ExcludedIPRanges = everyAddress()
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func everyAddress() []*net.IPNet {
	return []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
}

// maxCommonName is in characters (RFC 5280, appendix A.1, ub-common-name).
const maxCommonName = 64

// subject names an authority. Verifiers look issuers up by this name, so it is
// random in one part: two authorities of one day and machine must not be confused.
func subject(host string, now time.Time) pkix.Name {
	some := make([]byte, 4)
	_, _ = rand.Read(some) // never fails
	name := "Fencepost egress CA " + now.UTC().Format(time.DateOnly)
	if host != "" {
		name += " on " + strings.ToValidUTF8(host, "?")
	}
	if r := []rune(name); len(r) > maxCommonName {
		name = string(r[:maxCommonName])
	}
	return pkix.Name{Organization: []string{"Fencepost"}, CommonName: name, SerialNumber: hex.EncodeToString(some)}
}

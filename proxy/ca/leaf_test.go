package ca

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// temporary is an authority whose time is the clock's.
func temporary(t *testing.T, o Options) (*Authority, *clock) {
	t.Helper()
	a, err := Temporary(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{t: time.Now()}
	a.now = c.now
	return a, c
}

func leafOf(t *testing.T, a *Authority, name string) *tls.Certificate {
	t.Helper()
	c, err := a.Leaf(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// accepted verifies a chain as a client does that trusts a only.
func accepted(a *Authority, c *tls.Certificate, name string, at time.Time) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(a.PEM())
	for _, der := range c.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		between.AddCert(cert)
	}
	cert, err := x509.ParseCertificate(c.Certificate[0])
	if err == nil {
		_, err = cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: name, CurrentTime: at})
	}
	return err
}

func TestLeavesForEveryKindOfName(t *testing.T) {
	a, clock := temporary(t, Options{})
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61)
	for _, r := range []struct{ name, dns, ip, common string }{
		{"api.example.com", "api.example.com", "", "api.example.com"},
		{"API.Example.Com", "api.example.com", "", "api.example.com"},
		{"localhost", "localhost", "", "localhost"},
		{"my_service.internal", "my_service.internal", "", "my_service.internal"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", "", "xn--bcher-kva.example"},
		{strings.Repeat("n", 63) + ".x", strings.Repeat("n", 63) + ".x", "", ""}, // 65 characters
		{long, long, "", ""},
		{"192.0.2.7", "", "192.0.2.7", "192.0.2.7"},
		{"2001:db8::7", "", "2001:db8::7", "2001:db8::7"},
		{"2001:0DB8:0::7", "", "2001:db8::7", "2001:db8::7"},
		{"::ffff:192.0.2.7", "", "192.0.2.7", "192.0.2.7"},
	} {
		c, err := a.Leaf(t.Context(), r.name)
		if err != nil {
			t.Errorf("%q: %v", r.name, err)
			continue
		}
		l := c.Leaf
		if l.Subject.CommonName != r.common {
			t.Errorf("%q: common name %q", r.name, l.Subject.CommonName)
		}
		if dns := strings.Join(l.DNSNames, " "); dns != r.dns {
			t.Errorf("%q: DNS names %q", r.name, dns)
		}
		asked := r.dns
		if r.ip != "" {
			asked = "[" + r.ip + "]"
			if len(l.IPAddresses) != 1 || !l.IPAddresses[0].Equal(net.ParseIP(r.ip)) {
				t.Errorf("%q: addresses %v", r.name, l.IPAddresses)
			}
		} else if len(l.IPAddresses) != 0 {
			t.Errorf("%q: addresses %v", r.name, l.IPAddresses)
		}
		if err := accepted(a, c, asked, clock.now()); err != nil {
			t.Errorf("%q is not accepted: %v", r.name, err)
		}
		if err := accepted(a, c, "other.example", clock.now()); err == nil {
			t.Errorf("%q is accepted for another host", r.name)
		}
		if l.IsCA || l.KeyUsage != x509.KeyUsageDigitalSignature || len(l.ExtKeyUsage) != 1 || l.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
			t.Errorf("%q: CA %v, usage %b %v", r.name, l.IsCA, l.KeyUsage, l.ExtKeyUsage)
		}
		if d := l.NotAfter.Sub(l.NotBefore); d > 72*time.Hour || d < 71*time.Hour {
			t.Errorf("%q lasts %v", r.name, d)
		}
		if d := clock.now().Sub(l.NotBefore); d < 59*time.Minute || d > 61*time.Minute {
			t.Errorf("%q began %v ago", r.name, d)
		}
		if key, ok := c.PrivateKey.(*ecdsa.PrivateKey); !ok || key.Equal(a.key) {
			t.Errorf("%q: its key is the authority's, or no ECDSA key", r.name)
		}
	}
}

func TestNamesThatGetNoLeaf(t *testing.T) {
	a, _ := temporary(t, Options{})
	for _, name := range []string{
		"", ".", "a..b", "example.com.", ".example.com", "*.example.com", "*", "a b", "exa\x00mple.com", "example.com\n",
		"-a.example", "a-.example", "bücher.example", "[::1]", "[::1]:443", "example.com:443", "fe80::1%eth0", "127.1", "1.2.3.400", "127.0.0.0x1",
		"http://example.com", "../ca", "a/b", "a@b", strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 127) + "aa",
	} {
		c, err := a.Leaf(t.Context(), name)
		if err == nil {
			t.Errorf("%q got one for %v %v", name, c.Leaf.DNSNames, c.Leaf.IPAddresses)
		} else if !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("the error does not name %q: %v", name, err)
		}
	}
	if a.Minted() != 0 {
		t.Errorf("%d were signed", a.Minted())
	}
}

func TestALimitedAuthoritySignsForItsDomainsOnly(t *testing.T) {
	a, clock := temporary(t, Options{PermitDomains: []string{"example.com", "api.test"}})
	for _, name := range []string{"example.com", "a.example.com", "a.b.example.com", "api.test"} {
		if err := accepted(a, leafOf(t, a, name), name, clock.now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"example.org", "notexample.com", "com", "test", "example.com.evil.test", "192.0.2.1", "::1", "127.0.0.1"} {
		_, err := a.Leaf(t.Context(), name)
		want(t, err, fmt.Sprintf("%q", name), "limited to example.com, api.test")
	}
	if i := a.Info(); !i.AddressesExcluded || strings.Join(i.PermitDomains, " ") != "example.com api.test" {
		t.Errorf("%+v", i)
	}
	critical := false
	for _, e := range a.cert.Extensions {
		critical = critical || e.Id.String() == "2.5.29.30" && e.Critical
	}
	if !critical {
		t.Error("the name constraints are not critical")
	}
	if len(a.cert.ExcludedIPRanges) != 2 {
		t.Errorf("excluded: %v", a.cert.ExcludedIPRanges)
	}
}

// TestALeafOfAStolenLimitedKey: the constraint binds who has the key too, in clients
// that honour it.
func TestALeafOfAStolenLimitedKey(t *testing.T) {
	for _, limited := range []bool{false, true} {
		var o Options
		if limited {
			o.PermitDomains = []string{"example.com"}
		}
		a, clock := temporary(t, o)
		// The thief's program does not look at the constraints.
		thief := *a.cert
		thief.PermittedDNSDomains, thief.ExcludedIPRanges = nil, nil
		for _, l := range []*x509.Certificate{{DNSNames: []string{"bank.test"}}, {IPAddresses: []net.IP{{192, 0, 2, 1}}}, {IPAddresses: []net.IP{net.ParseIP("2001:db8::1")}}} {
			key, _ := newKey()
			l.NotBefore, l.NotAfter = a.cert.NotBefore, a.cert.NotAfter
			der, err := x509.CreateCertificate(rand.Reader, l, &thief, key.Public(), a.key)
			if err != nil {
				t.Fatal(err)
			}
			err = accepted(a, &tls.Certificate{Certificate: [][]byte{der}}, "", clock.now())
			if limited == (err == nil) {
				t.Errorf("limited %v, a forged certificate for %v %v: %v", limited, l.DNSNames, l.IPAddresses, err)
			}
		}
	}
}

func TestLeavesEndWithTheAuthority(t *testing.T) {
	a, clock := temporary(t, Options{Lifetime: 100 * time.Hour})
	clock.add(90 * time.Hour)
	c := leafOf(t, a, "a.example")
	if c.Leaf.NotAfter.After(a.NotAfter()) {
		t.Errorf("the leaf ends %v, the authority %v", c.Leaf.NotAfter, a.NotAfter())
	}
	clock.add(4 * time.Hour)
	if leafOf(t, a, "a.example") != c {
		t.Error("renewed before half of its 10 hours")
	}
	clock.add(2 * time.Hour)
	if leafOf(t, a, "a.example") == c {
		t.Error("not renewed after half of its 10 hours")
	}
	if !a.NearExpiry() {
		t.Error("the end is near, and nobody is told")
	}
	clock.add(5 * time.Hour)
	_, err := a.Leaf(t.Context(), "a.example")
	want(t, err, `"a.example"`, "expired on", "fencepost ca init")
	clock.add(-2000 * time.Hour)
	_, err = a.Leaf(t.Context(), "a.example")
	want(t, err, "not valid before", "clock")
}

func TestALeafOfANewAuthorityDoesNotBeginBeforeIt(t *testing.T) {
	a, clock := temporary(t, Options{})
	clock.add(-30 * time.Minute)
	if c := leafOf(t, a, "a.example"); c.Leaf.NotBefore.Before(a.cert.NotBefore) {
		t.Errorf("%v before %v", c.Leaf.NotBefore, a.cert.NotBefore)
	}
}

func TestLeavesAreRenewedAtHalfTheirLife(t *testing.T) {
	a, clock := temporary(t, Options{})
	first := leafOf(t, a, "a.example")
	clock.add(35 * time.Hour)
	if leafOf(t, a, "a.example") != first || a.Minted() != 1 {
		t.Error("renewed too early")
	}
	clock.add(time.Hour)
	second := leafOf(t, a, "a.example")
	if second == first || second.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) == 0 {
		t.Error("not renewed, or with the same serial number")
	}
	// A clock that was set back behind its beginning.
	clock.add(-3 * time.Hour)
	third := leafOf(t, a, "a.example")
	if third == second || third.Leaf.NotBefore.After(clock.now()) {
		t.Error("a leaf that is not valid yet is shown")
	}
	if a.leaves.recent.Len() != 1 {
		t.Errorf("%d leaves of one name", a.leaves.recent.Len())
	}
}

func TestSerialNumbersDiffer(t *testing.T) {
	a, _ := temporary(t, Options{})
	seen := make(map[string]bool)
	for i := range 200 {
		n := leafOf(t, a, fmt.Sprintf("h%d.example", i)).Leaf.SerialNumber
		if seen[n.String()] || n.Sign() <= 0 || n.BitLen() > 160 {
			t.Errorf("serial number %v", n)
		}
		seen[n.String()] = true
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	a, _ := temporary(t, Options{})
	a.leaves.max = 8
	kept := leafOf(t, a, "kept.example")
	for i := range 50 {
		leafOf(t, a, fmt.Sprintf("h%d.example", i))
		if leafOf(t, a, "kept.example") != kept {
			t.Fatal("the most recently used one went")
		}
	}
	if n, m := a.leaves.recent.Len(), len(a.leaves.byName); n != 8 || m != 8 {
		t.Errorf("%d and %d leaves are kept, want 8", n, m)
	}
	before := a.Minted()
	leafOf(t, a, "h0.example")
	if a.Minted() != before+1 {
		t.Error("one that went is still there")
	}
	if a.leaves.max = maxLeaves; maxLeaves > 10_000 {
		t.Error("the bound is none")
	}
}

func TestAHundredAtOnceShareOneMint(t *testing.T) {
	a, _ := temporary(t, Options{})
	var wg sync.WaitGroup
	got := make([]*tls.Certificate, 100)
	for i := range got {
		wg.Go(func() {
			var err error
			name := "a.example"
			if i%2 == 0 {
				name = "A.Example"
			}
			if got[i], err = a.Leaf(context.Background(), name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, c := range got {
		if c != got[0] {
			t.Error("two certificates of one host")
		}
	}
	if a.Minted() != 1 {
		t.Errorf("%d were made", a.Minted())
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	l := newLeaves(4)
	a, clock := temporary(t, Options{})
	begun, end := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := l.get(context.Background(), "a", clock.now(), func() (*tls.Certificate, error) {
			close(begun)
			<-end
			return a.mint("a.example", clock.now())
		})
		first <- err
	}()
	<-begun
	never := func() (*tls.Certificate, error) {
		t.Error("a second one was made beside the first")
		return nil, errors.New("second")
	}
	gone := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	if _, err := l.get(ctx, "a", clock.now(), never); err != gone {
		t.Errorf("got %v", err)
	}
	// Another host does not wait.
	if _, err := l.get(context.Background(), "b", clock.now(), func() (*tls.Certificate, error) { return a.mint("b.example", clock.now()) }); err != nil {
		t.Error(err)
	}
	second := make(chan error, 1)
	go func() {
		_, err := l.get(context.Background(), "a", clock.now(), never)
		second <- err
	}()
	close(end)
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
}

func TestAFailedMintIsTriedAgain(t *testing.T) {
	l := newLeaves(4)
	a, clock := temporary(t, Options{})
	bad := errors.New("bad")
	if _, err := l.get(t.Context(), "a", clock.now(), func() (*tls.Certificate, error) { return nil, bad }); err != bad {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = l.get(t.Context(), "a", clock.now(), func() (*tls.Certificate, error) { panic("x") })
	}()
	if _, err := l.get(t.Context(), "a", clock.now(), func() (*tls.Certificate, error) { return a.mint("a.example", clock.now()) }); err != nil {
		t.Error(err)
	}
}

// TestRandomUse: many hosts, a small cache and a moving clock, at once. Whoever asks
// gets a certificate of the name that is valid now.
func TestRandomUse(t *testing.T) {
	a, clock := temporary(t, Options{})
	a.leaves.max = 3
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 40 {
				if g == 0 {
					clock.add(time.Hour)
				}
				name := fmt.Sprintf("h%d.example", (g+i)%6)
				at := clock.now()
				c, err := a.Leaf(context.Background(), name)
				if err != nil || c.Leaf.DNSNames[0] != name || at.After(c.Leaf.NotAfter) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	if n, m := a.leaves.recent.Len(), len(a.leaves.minting); n != 3 || m != 0 {
		t.Errorf("%d leaves, %d still being made", n, m)
	}
}

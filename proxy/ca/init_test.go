package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// want fails unless err says all of the words.
func want(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func made(t *testing.T, o Options) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "ca")
	if _, err := Init(dir, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, name string, mode fs.FileMode, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func keyPEM(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestInitMakesWhatTheDesignSays(t *testing.T) {
	before := time.Now()
	old := syscall.Umask(0) // the modes do not depend on it
	dir := made(t, Options{Host: "build-7"})
	syscall.Umask(old)
	a, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{dir: 0o700 | fs.ModeDir, filepath.Join(dir, CertFile): 0o644, filepath.Join(dir, KeyFile): 0o600} {
		if fi, err := os.Stat(name); err != nil || fi.Mode() != mode {
			t.Errorf("%s: %v %v, want %v", name, fi.Mode(), err, mode)
		}
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 {
		t.Errorf("more than two files: %v", entries)
	}
	c := a.cert
	if key, ok := c.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("the key is a %T", c.PublicKey)
	}
	if !c.IsCA || !c.BasicConstraintsValid || c.MaxPathLen != 0 || !c.MaxPathLenZero || c.KeyUsage != x509.KeyUsageCertSign || len(c.SubjectKeyId) == 0 {
		t.Errorf("CA %v, path length %d, usage %b, key id %x", c.IsCA, c.MaxPathLen, c.KeyUsage, c.SubjectKeyId)
	}
	if n := c.SerialNumber.BitLen(); n < 100 || n > 160 {
		t.Errorf("a serial number of %d bits", n)
	}
	if !strings.HasPrefix(c.Subject.CommonName, "Fencepost egress CA "+before.UTC().Format("2006-")) || !strings.HasSuffix(c.Subject.CommonName, " on build-7") {
		t.Errorf("subject %q", c.Subject)
	}
	if d := c.NotAfter.Sub(before); d < DefaultLifetime-time.Minute || d > DefaultLifetime+time.Minute {
		t.Errorf("it lasts %v", d)
	}
	if d := before.Sub(c.NotBefore); d < time.Hour-time.Minute || d > time.Hour+time.Minute {
		t.Errorf("it began %v ago", d)
	}
	if len(c.PermittedDNSDomains) != 0 || len(c.ExcludedIPRanges) != 0 {
		t.Error("it is limited, and nobody asked for that")
	}
	if a.NearExpiry() || !a.Info().NearExpiry(a.NotAfter().Add(-29*24*time.Hour)) || a.Info().NearExpiry(a.NotAfter().Add(-31*24*time.Hour)) {
		t.Error("near expiry is not 30 days before the end")
	}
	info, certificate, problem, err := Describe(dir)
	if err != nil || problem != nil || info.Fingerprint != a.Fingerprint() || !bytes.Equal(certificate, a.PEM()) || info.KeyFile != filepath.Join(dir, KeyFile) {
		t.Errorf("%+v %v %v", info, problem, err)
	}
	if file, _ := os.ReadFile(filepath.Join(dir, CertFile)); !bytes.Equal(file, a.PEM()) {
		t.Error("the file and PEM differ")
	}
}

func TestTwoAuthoritiesOfOneDayHaveDifferentNames(t *testing.T) {
	a, _ := Temporary(Options{Host: "h"})
	b, _ := Temporary(Options{Host: "h"})
	if a.Info().Subject == b.Info().Subject || a.Info().Serial == b.Info().Serial {
		t.Errorf("%s and %s", a.Info().Subject, b.Info().Subject)
	}
}

func TestALongHostNameFitsIntoTheSubject(t *testing.T) {
	for _, host := range []string{strings.Repeat("h", 200), strings.Repeat("ü", 100), "bad\xffutf8", "two\nlines"} {
		a, err := Temporary(Options{Host: host})
		if err != nil {
			t.Errorf("%q: %v", host, err)
		} else if n := len([]rune(a.cert.Subject.CommonName)); n > 64 {
			t.Errorf("%q: %d characters", host, n)
		}
	}
}

func TestInitNeverOverwrites(t *testing.T) {
	dir := made(t, Options{})
	cert, _ := os.ReadFile(filepath.Join(dir, CertFile))
	key, _ := os.ReadFile(filepath.Join(dir, KeyFile))
	_, err := Init(dir, Options{})
	if !errors.Is(err, ErrExists) {
		t.Errorf("want ErrExists: %v", err)
	}
	want(t, err, "already", "move ca.pem and ca-key.pem away")
	os.Remove(filepath.Join(dir, KeyFile)) // lost
	_, err = Init(dir, Options{})
	if !errors.Is(err, ErrExists) {
		t.Errorf("without its key: %v", err)
	}
	write(t, filepath.Join(dir, KeyFile), 0o600, key)
	if b, _ := os.ReadFile(filepath.Join(dir, CertFile)); !bytes.Equal(b, cert) {
		t.Error("the certificate changed")
	}
	if _, err := Open(dir); err != nil {
		t.Error(err)
	}
}

func TestManyInitsAtOnceMakeOneAuthority(t *testing.T) {
	for range 5 {
		dir := filepath.Join(t.TempDir(), "a", "b")
		var wg sync.WaitGroup
		prints := make([]string, 8)
		inits := make(chan error, 8)
		for i := range prints {
			wg.Go(func() {
				if i%2 == 0 {
					_, err := Init(dir, Options{})
					inits <- err
				}
				a, err := OpenOrInit(dir, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				prints[i] = a.Fingerprint()
			})
		}
		wg.Wait()
		close(inits)
		for _, p := range prints {
			if p != prints[0] {
				t.Errorf("two authorities: %s and %s", p, prints[0])
			}
		}
		won := 0
		for err := range inits {
			if err == nil {
				won++
			} else if !errors.Is(err, ErrExists) {
				t.Error(err)
			}
		}
		if won > 1 {
			t.Errorf("%d Inits made an authority", won)
		}
	}
}

// TestWhatAnInterruptedInitLeft: each state in which a kill can leave the folder.
func TestWhatAnInterruptedInitLeft(t *testing.T) {
	key, _ := newKey()
	part := certPart(t)
	t.Run("an empty folder", func(t *testing.T) {
		if _, err := Init(t.TempDir(), Options{}); err != nil {
			t.Error(err)
		}
	})
	for name, text := range map[string][]byte{"an empty key": nil, "half a key": keyPEM(t, key)[:100]} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, KeyFile)
			write(t, file, 0o600, text)
			_, err := Init(dir, Options{})
			want(t, err, "interrupted", "remove it", file)
			if b, _ := os.ReadFile(file); !bytes.Equal(b, text) {
				t.Error("the key's file was changed")
			}
			_, err = Open(dir)
			want(t, err, "ca.pem", "interrupted")
		})
	}
	for name, more := range map[string][]byte{"the key": nil, "the key and a part of the certificate": part[:50], "the key and the whole certificate": part} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, KeyFile), 0o600, keyPEM(t, key))
			if more != nil {
				write(t, filepath.Join(dir, CertFile+".new"), 0o644, more)
			}
			if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Open before: %v", err)
			}
			a, err := OpenOrInit(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !key.PublicKey.Equal(a.cert.PublicKey) {
				t.Error("it has another key than the one that was there")
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 2 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func certPart(t *testing.T) []byte {
	a, err := Temporary(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a.PEM()
}

func TestAFailedInitLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	// The certificate cannot be written: a folder with something in it has its name.
	if err := os.MkdirAll(filepath.Join(dir, CertFile+".new", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(dir, Options{}); err == nil {
		t.Fatal("no error")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestHostileFolders: nothing is written through what somebody else put there.
func TestHostileFolders(t *testing.T) {
	key, _ := newKey()
	aim := filepath.Join(t.TempDir(), "aim")
	write(t, aim, 0o600, []byte("precious"))
	rows := []struct {
		name    string
		prepare func(dir string) error
		say     string
	}{
		{"the key is a link to a file", func(d string) error { return os.Symlink(aim, filepath.Join(d, KeyFile)) }, "not a plain file"},
		{"the key is a link to nowhere", func(d string) error { return os.Symlink(aim+"-not", filepath.Join(d, KeyFile)) }, "not a plain file"},
		{"the key is a pipe", func(d string) error { return syscall.Mkfifo(filepath.Join(d, KeyFile), 0o600) }, "not a plain file"},
		{"the key is a folder", func(d string) error { return os.Mkdir(filepath.Join(d, KeyFile), 0o700) }, "not a plain file"},
		{"the certificate is a link to nowhere", func(d string) error { return os.Symlink(aim+"-not", filepath.Join(d, CertFile)) }, "already"},
		{"others can read the key", func(d string) error {
			write(t, filepath.Join(d, KeyFile), 0o644, keyPEM(t, key))
			return nil
		}, "chmod 600"},
		{"others can write to the folder", func(d string) error { return os.Chmod(d, 0o777) }, "chmod go-w"},
		{"the group can write to the folder", func(d string) error { return os.Chmod(d, 0o770) }, "chmod go-w"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ca")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := r.prepare(dir); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadDir(dir)
			_, err := Init(dir, Options{})
			want(t, err, r.say)
			if after, _ := os.ReadDir(dir); len(after) != len(before) {
				t.Errorf("left behind: %v", after)
			}
		})
	}
	if b, _ := os.ReadFile(aim); string(b) != "precious" {
		t.Errorf("the link's aim is %q", b)
	}
	if _, err := os.Lstat(aim + "-not"); err == nil {
		t.Error("the link was followed")
	}
	// What looks like the part of a certificate is replaced, not followed.
	dir := t.TempDir()
	if err := os.Symlink(aim, filepath.Join(dir, CertFile+".new")); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(dir, Options{}); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(aim); string(b) != "precious" {
		t.Errorf("the link's aim is %q", b)
	}
}

// asNobody runs f in a thread that has no rights on the file system beyond its
// user's. The thread ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestFoldersThatCannotBeUsed(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.MkdirAll(filepath.Join(closed, "ca"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(filepath.Join(closed, "ca"), Options{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(closed, 0o700) })
	asNobody(t, func() {
		for name, f := range map[string]func(string) error{
			"Open":       func(d string) error { _, err := Open(d); return err },
			"Init":       func(d string) error { _, err := Init(d, Options{}); return err },
			"OpenOrInit": func(d string) error { _, err := OpenOrInit(d, Options{}); return err },
		} {
			if err := f(filepath.Join(closed, "ca")); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s in a folder that cannot be read: %v", name, err)
			}
		}
	})
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, 0o600, nil)
	_, err := Init(file, Options{})
	want(t, err, file)
	_, err = Open(file)
	want(t, err, "not a folder")
	_, err = Open(filepath.Join(t.TempDir(), "none"))
	want(t, err, "fencepost ca init --dir")
}

func TestInitRefusesOptions(t *testing.T) {
	for _, r := range []struct {
		o   Options
		say string
	}{
		{Options{Lifetime: time.Minute}, "lifetime"},
		{Options{Lifetime: -time.Hour}, "lifetime"},
		{Options{Lifetime: 20 * DefaultLifetime}, "lifetime"},
		{Options{PermitDomains: []string{"*.example.com"}}, `write "example.com"`},
		{Options{PermitDomains: []string{"192.0.2.1"}}, "names only"},
		{Options{PermitDomains: []string{"::1"}}, "names only"},
		{Options{PermitDomains: []string{"ok.example", ""}}, "empty"},
		{Options{PermitDomains: []string{".example.com"}}, "not a host name"},
		{Options{PermitDomains: []string{"exa mple.com"}}, "not a host name"},
	} {
		dir := filepath.Join(t.TempDir(), "ca")
		_, err := Init(dir, r.o)
		want(t, err, r.say)
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%+v: the folder was made", r.o)
		}
		_, err = Temporary(r.o)
		want(t, err, r.say)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := made(t, Options{})
	certFile, keyFile := filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile)
	cert, _ := os.ReadFile(certFile)
	key, _ := os.ReadFile(keyFile)
	other, _ := newKey()
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	selfSigned := func(change func(*x509.Certificate)) func(t *testing.T) {
		return func(t *testing.T) {
			k, _ := newKey()
			o, _ := Options{}.complete()
			c, err := newRoot(o, k, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			change(c)
			der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
			if err != nil {
				t.Fatal(err)
			}
			write(t, certFile, 0o644, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
			write(t, keyFile, 0o600, keyPEM(t, k))
		}
	}
	for _, r := range []struct {
		name    string
		prepare func(t *testing.T)
		say     []string
	}{
		{"a key that others can read", func(t *testing.T) { write(t, keyFile, 0o640, key) }, []string{"chmod 600 " + keyFile, "0640"}},
		{"another key", func(t *testing.T) { write(t, keyFile, 0o600, keyPEM(t, other)) }, []string{"ca-key.pem is not the key"}},
		{"an RSA key", func(t *testing.T) { write(t, keyFile, 0o600, keyPEM(t, rsaKey)) }, []string{"ca-key.pem is not the key"}},
		{"no key in the file", func(t *testing.T) { write(t, keyFile, 0o600, []byte("x")) }, []string{"ca-key.pem is not the key"}},
		{"no key", func(t *testing.T) { os.Remove(keyFile) }, []string{"of no use without it"}},
		{"a pipe for a key", func(t *testing.T) { os.Remove(keyFile); syscall.Mkfifo(keyFile, 0o600) }, []string{"not a plain file"}},
		{"a huge key", func(t *testing.T) { write(t, keyFile, 0o600, make([]byte, 2<<20)) }, []string{"not a plain file"}},
		{"the key beside the certificate", func(t *testing.T) { write(t, certFile, 0o644, append(bytes.Clone(cert), key...)) }, []string{"ca.pem holds a PRIVATE KEY", "alone"}},
		{"two certificates", func(t *testing.T) { write(t, certFile, 0o644, append(bytes.Clone(cert), cert...)) }, []string{"more than one"}},
		{"no certificate in the file", func(t *testing.T) { write(t, certFile, 0o644, []byte("x")) }, []string{"no certificate"}},
		{"a broken certificate", func(t *testing.T) {
			write(t, certFile, 0o644, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
		}, []string{"ca.pem"}},
		{"a folder that others can write to", func(t *testing.T) { os.Chmod(dir, 0o777) }, []string{"chmod go-w " + dir}},
		{"no authority's certificate", selfSigned(func(c *x509.Certificate) { c.IsCA = false; c.MaxPathLenZero = false; c.MaxPathLen = -1 }), []string{"CA:FALSE"}},
		{"no right to sign", selfSigned(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), []string{"keyCertSign"}},
		{"expired", selfSigned(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), []string{"expired on", "fencepost ca init"}},
		{"not valid yet", selfSigned(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }), []string{"not valid before", "clock"}},
	} {
		t.Run(r.name, func(t *testing.T) {
			for _, f := range []string{certFile, keyFile} {
				os.Remove(f)
			}
			os.Chmod(dir, 0o700)
			write(t, certFile, 0o644, cert)
			write(t, keyFile, 0o600, key)
			if _, err := Open(dir); err != nil {
				t.Fatal(err)
			}
			r.prepare(t)
			_, err := Open(dir)
			want(t, err, append(r.say, dir)...)
			if _, err := OpenOrInit(dir, Options{}); err == nil {
				t.Error("OpenOrInit takes it")
			}
		})
	}
}

func TestAnIntermediateIsRefused(t *testing.T) {
	root, _ := Temporary(Options{})
	key, _ := newKey()
	now := time.Now()
	c := &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, root.cert, key.Public(), root.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	_, err = newAuthority(cert, key, time.Now)
	want(t, err, "not signed with its own key")
}

func TestKeyFilesThatOthersCanRead(t *testing.T) {
	for _, r := range []struct {
		mode        fs.FileMode
		owner, user int
		open        bool
	}{
		{0o600, 1000, 1000, false},
		{0o400, 1000, 1000, false},
		{0o640, 1000, 1000, true},
		{0o604, 1000, 1000, true},
		{0o620, 1000, 1000, true},
		{0o440, 0, 1000, false}, // a mounted secret, read by its group
		{0o640, 0, 1000, false},
		{0o660, 0, 1000, true},
		{0o444, 0, 1000, true},
		{0o440, 0, 0, true}, // root reads its own
		{0o440, -1, 1000, true},
	} {
		if got := openToOthers(r.mode, r.owner, r.user); got != r.open {
			t.Errorf("mode %o of user %d, read by %d: %v", r.mode, r.owner, r.user, got)
		}
	}
}

// TestAKeyIsReadThroughALink: Kubernetes mounts secrets that way.
func TestAKeyIsReadThroughALink(t *testing.T) {
	real := made(t, Options{})
	dir := t.TempDir()
	for _, f := range []string{CertFile, KeyFile} {
		if err := os.Symlink(filepath.Join(real, f), filepath.Join(dir, f)); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(dir, 0o777|fs.ModeSticky)
	if _, err := Open(dir); err != nil {
		t.Error(err)
	}
}

func TestDescribeTellsWhatIsWrong(t *testing.T) {
	dir := made(t, Options{PermitDomains: []string{"Example.com", "api.test"}})
	info, _, problem, err := Describe(dir)
	if err != nil || problem != nil || strings.Join(info.PermitDomains, " ") != "example.com api.test" || !info.AddressesExcluded {
		t.Errorf("%+v %v %v", info, problem, err)
	}
	os.Chmod(filepath.Join(dir, KeyFile), 0o644)
	_, _, problem, err = Describe(dir)
	want(t, problem, "chmod 600")
	if err != nil {
		t.Error(err)
	}
	os.Chmod(filepath.Join(dir, KeyFile), 0o600)
	os.Chmod(filepath.Dir(dir), 0o755)
	os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755)
	os.Chmod(dir, 0o755)
	asNobody(t, func() {
		if _, _, problem, err := Describe(dir); err != nil || problem != nil {
			t.Errorf("another user's: %v %v", problem, err)
		}
	})
	_, _, _, err = Describe(t.TempDir())
	want(t, err, "fencepost ca init")
}

func TestUserDir(t *testing.T) {
	for _, r := range []struct{ state, home, want string }{
		{"/s", "/h", "/s/fencepost/ca"},
		{"", "/h", "/h/.local/state/fencepost/ca"},
		{"relative", "/h", "/h/.local/state/fencepost/ca"},
		{"", "", ""},
	} {
		t.Setenv("XDG_STATE_HOME", r.state)
		t.Setenv("HOME", r.home)
		got, err := UserDir()
		if got != r.want || (err == nil) != (r.want != "") {
			t.Errorf("%+v: %q %v", r, got, err)
		}
	}
}

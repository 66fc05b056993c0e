package clientenv

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fencepost/proxy/ca"
	"software.sslmate.com/src/go-pkcs12"
)

func TestJavaOptionsAreReadAsTheyWereWritten(t *testing.T) {
	for _, list := range [][]string{
		{"-Da=1"}, {"-Da=1", "-Db=2"}, {"-Da=/with space/x", "-Db"}, {`-Da=it's`}, {`-Da="q"`}, {"-Da=\ttab"}, {"-Da="},
	} {
		var quoted []string
		for _, o := range list {
			q, err := quoteJava(o)
			if err != nil {
				t.Error(err)
			}
			quoted = append(quoted, q)
		}
		if got := splitJava(" " + strings.Join(quoted, "  ")); !slices.Equal(got, list) {
			t.Errorf("%q became %q", list, got)
		}
	}
	for in, want := range map[string][]string{"": nil, "  ": nil, `a"b c"d 'e f'`: {"ab cd", "e f"}, `"open`: {"open"}} {
		if got := splitJava(in); !slices.Equal(got, want) {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestJavaKeepsTheUsersOptions(t *testing.T) {
	e := prepare(t, Settings{Base: append(bare(t, authority(t)), "JAVA_TOOL_OPTIONS=-Dmine='a b' -Dhttp.proxyHost=other"), Proxy: "http://[::1]:3128"})
	got := splitJava(e.value("JAVA_TOOL_OPTIONS"))
	want := []string{
		"-Dmine=a b", "-Dhttp.proxyHost=other",
		"-Dhttp.proxyHost=::1", "-Dhttp.proxyPort=3128", "-Dhttps.proxyHost=::1", "-Dhttps.proxyPort=3128", "-Dhttp.nonProxyHosts=localhost|127.*|[::1]",
		"-Djavax.net.ssl.trustStore=" + filepath.Join(e.dir, StoreFile), "-Djavax.net.ssl.trustStoreType=PKCS12", "-Djavax.net.ssl.trustStorePassword=",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	e = prepare(t, Settings{Base: append(bare(t, authority(t)), "NO_PROXY=10.0.0.0/8"), Proxy: "http://127.0.0.1:3128"})
	if len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "10.0.0.0/8") {
		t.Errorf("%v", e.Warnings)
	}
}

// storeHolds checks what a Java trust store holds.
func storeHolds(t *testing.T, file string, want ...*ca.Authority) {
	t.Helper()
	c, err := readStore(file, "")
	if err != nil {
		t.Error(err)
		return
	}
	if !bytes.Equal(c.pem(), certsOf(want...).pem()) {
		t.Errorf("%s holds %d certificates, want %d others", file, len(c.ders), len(want))
	}
}

func TestWhatJavaTrusts(t *testing.T) {
	ours, system, x, y := authority(t), authority(t), authority(t), authority(t)
	dir := t.TempDir()
	plain, _, err := trustStore(certsOf(x))
	if err != nil {
		t.Fatal(err)
	}
	list := func(a *ca.Authority, password string) string {
		entries := []pkcs12.TrustStoreEntry{{Cert: parse(t, certsOf(a).ders[0]), FriendlyName: "x"}}
		b, err := pkcs12.Modern.EncodeTrustStoreEntries(entries, password)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	fx := write(t, filepath.Join(dir, "x.p12"), 0o600, string(plain))
	fchangeit := write(t, filepath.Join(dir, "changeit.p12"), 0o600, list(x, "changeit"))
	fsecret := write(t, filepath.Join(dir, "secret.p12"), 0o600, list(x, "geheim"))
	fjks := write(t, filepath.Join(dir, "x.jks"), 0o600, string(jks(2, x, y)))
	jdk := func(a *ca.Authority, path string) string {
		home := t.TempDir()
		b, _, _ := trustStore(certsOf(a))
		write(t, filepath.Join(home, path), 0o600, string(b))
		return home
	}
	java := filepath.Join(jdk(y, "lib/security/cacerts"), "bin", "java")
	write(t, java, 0o700, "#!/bin/sh\n")
	path := t.TempDir()
	os.Symlink(java, filepath.Join(path, "java"))
	for _, r := range []struct {
		name    string
		set     []string
		want    []*ca.Authority
		warning string
	}{
		{"no JDK", nil, []*ca.Authority{system}, ""},
		{"JAVA_HOME", []string{"JAVA_HOME=" + jdk(x, "lib/security/cacerts")}, []*ca.Authority{x}, ""},
		{"JAVA_HOME of Java 8", []string{"JAVA_HOME=" + jdk(x, "jre/lib/security/cacerts")}, []*ca.Authority{x}, ""},
		{"the java of PATH", []string{"JAVA_HOME=", "PATH=" + path}, []*ca.Authority{y}, ""},
		{"a store of the user's", []string{"JAVA_HOME=" + jdk(y, "lib/security/cacerts"), "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=" + fx}, []*ca.Authority{x}, ""},
		{"the last of two stores", []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/none -Djavax.net.ssl.trustStore=" + fx}, []*ca.Authority{x}, ""},
		{"JKS", []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=" + fjks}, []*ca.Authority{x, y}, ""},
		{"the usual password", []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=" + fchangeit}, []*ca.Authority{x}, ""},
		{"a password", []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=" + fsecret + " -Djavax.net.ssl.trustStorePassword=geheim"}, []*ca.Authority{x}, ""},
		{"a password that is not known", []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=" + fsecret}, nil, fsecret},
		{"a store that is not there", []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/none"}, nil, "/none"},
		{"a device", []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/dev/zero"}, nil, "/dev/zero"},
	} {
		t.Run(r.name, func(t *testing.T) {
			e := prepare(t, Settings{CA: ours.PEM(), Base: append(bare(t, system), r.set...)})
			storeHolds(t, filepath.Join(e.dir, StoreFile), append([]*ca.Authority{ours}, r.want...)...)
			if all := strings.Join(e.Warnings, "\n"); !strings.Contains(all, r.warning) || r.warning == "" && all != "" {
				t.Errorf("warnings: %s", all)
			}
		})
	}
}

// TestKeytoolReadsTheStore, and we read its.
func TestKeytoolReadsTheStore(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Skip("keytool is not installed")
	}
	x, y := authority(t), authority(t)
	e := prepare(t, Settings{CA: x.PEM(), Base: bare(t, y)})
	out, err := exec.Command(keytool, "-list", "-keystore", filepath.Join(e.dir, StoreFile), "-storepass", "").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "contains 2 entries") || !strings.Contains(string(out), x.Fingerprint()) || !strings.Contains(string(out), y.Fingerprint()) {
		t.Errorf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	pem := write(t, filepath.Join(dir, "x.pem"), 0o600, string(x.PEM()))
	for _, kind := range []string{"JKS", "PKCS12"} {
		file := filepath.Join(dir, kind)
		out, err := exec.Command(keytool, "-importcert", "-noprompt", "-storetype", kind, "-storepass", "changeit", "-alias", "x", "-file", pem, "-keystore", file).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
			continue
		}
		storeHolds(t, file, x)
	}
}

func parse(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// jks writes a JKS store as readJKS's comment has it, with a key in front.
func jks(version uint32, trusted ...*ca.Authority) []byte {
	var b bytes.Buffer
	text := func(s string) {
		binary.Write(&b, binary.BigEndian, uint16(len(s)))
		b.WriteString(s)
	}
	block := func(p []byte) {
		binary.Write(&b, binary.BigEndian, uint32(len(p)))
		b.Write(p)
	}
	cert := func(der []byte) {
		if version == 2 {
			text("X.509")
		}
		block(der)
	}
	binary.Write(&b, binary.BigEndian, []uint32{jksMagic, version, uint32(len(trusted) + 1), 1})
	text("own")
	b.Write(make([]byte, 8))
	block([]byte("a key that stays where it is"))
	binary.Write(&b, binary.BigEndian, uint32(1))
	cert([]byte("its certificate"))
	for _, a := range trusted {
		binary.Write(&b, binary.BigEndian, uint32(2))
		text("trusted")
		b.Write(make([]byte, 8))
		cert(certsOf(a).ders[0])
	}
	b.Write(make([]byte, 20))
	return b.Bytes()
}

func TestJKS(t *testing.T) {
	x, y := authority(t), authority(t)
	for _, version := range []uint32{1, 2} {
		b := jks(version, x, y)
		c, err := readJKS(b)
		if err != nil || !bytes.Equal(c.pem(), certsOf(x, y).pem()) {
			t.Errorf("version %d: %v", version, err)
		}
		for n := 4; n < len(b); n++ {
			if _, err := readJKS(b[:n]); err == nil {
				t.Errorf("version %d, cut at %d of %d: no error", version, n, len(b))
			}
		}
	}
	if _, err := readJKS(jks(3, x)); err == nil {
		t.Error("version 3")
	}
	huge := bytes.Repeat([]byte{0xff}, 64)
	binary.BigEndian.PutUint32(huge, jksMagic)
	binary.BigEndian.PutUint32(huge[4:], 2)
	if _, err := readJKS(huge); err == nil {
		t.Error("huge counts")
	}
}

package clientenv

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"software.sslmate.com/src/go-pkcs12"
)

const (
	trustStoreOption  = "-Djavax.net.ssl.trustStore="
	trustTypeOption   = "-Djavax.net.ssl.trustStoreType="
	trustSecretOption = "-Djavax.net.ssl.trustStorePassword="
)

// javaOptions are the options that a JVM gets: the proxy, without its token, and the
// trust store. Each is quoted for JAVA_TOOL_OPTIONS where it has to be.
func javaOptions(p *proxyURL, hosts []string, store string) (options string, left []string, err error) {
	var list []string
	if p != nil {
		var direct string
		direct, left = nonProxyHosts(hosts)
		list = append(list,
			"-Dhttp.proxyHost="+p.host, "-Dhttp.proxyPort="+p.port,
			"-Dhttps.proxyHost="+p.host, "-Dhttps.proxyPort="+p.port,
			"-Dhttp.nonProxyHosts="+direct) // for https as well
	}
	list = append(list, trustStoreOption+store, trustTypeOption+"PKCS12", trustSecretOption)
	for i, o := range list {
		if list[i], err = quoteJava(o); err != nil {
			return "", nil, err
		}
	}
	return strings.Join(list, " "), left, nil
}

// quoteJava quotes an option as HotSpot reads JAVA_TOOL_OPTIONS: white space separates,
// and either quote keeps it; nothing escapes.
func quoteJava(o string) (string, error) {
	switch {
	case !strings.ContainsAny(o, " \t\r\n\v\f\"'"):
		return o, nil
	case !strings.Contains(o, `"`):
		return `"` + o + `"`, nil
	case !strings.Contains(o, `'`):
		return `'` + o + `'`, nil
	}
	return "", errors.New("a path with both kinds of quotes cannot be told to Java")
}

// splitJava takes JAVA_TOOL_OPTIONS apart as HotSpot does.
func splitJava(s string) []string {
	var out []string
	for {
		s = strings.TrimLeft(s, " \t\r\n\v\f")
		if s == "" {
			return out
		}
		var o strings.Builder
		for s != "" && !strings.ContainsRune(" \t\r\n\v\f", rune(s[0])) {
			if q := s[0]; q == '"' || q == '\'' {
				text, rest, _ := strings.Cut(s[1:], string(q))
				o.WriteString(text)
				s = rest
			} else {
				o.WriteByte(q)
				s = s[1:]
			}
		}
		out = append(out, o.String())
	}
}

// javaBefore is what Java trusted before: the store of the user's options, else the
// JDK's own, else the system's roots. problem is set where a store cannot be read.
func (p *preparation) javaBefore() (before *certs, problem error) {
	var store, password string
	for _, o := range splitJava(p.get("JAVA_TOOL_OPTIONS")) { // the last one counts
		if v, ok := strings.CutPrefix(o, trustStoreOption); ok {
			store = v
		}
		if v, ok := strings.CutPrefix(o, trustSecretOption); ok {
			password = v
		}
	}
	if store != "" {
		before, err := readStore(store, password)
		if err != nil {
			return &certs{}, fmt.Errorf("the trust store %s of JAVA_TOOL_OPTIONS cannot be read (%w); convert it with keytool -importkeystore -deststoretype PKCS12", store, err)
		}
		return p.theirs(store, before), nil
	}
	for _, home := range javaHomes(p.get) {
		for _, name := range []string{"lib/security/jssecacerts", "lib/security/cacerts", "jre/lib/security/jssecacerts", "jre/lib/security/cacerts"} {
			if before, err := readStore(filepath.Join(home, name), ""); err == nil && len(before.ders) > 0 {
				return before, nil
			}
		}
	}
	return p.roots, nil
}

// javaHomes are the folders where a JDK may be: JAVA_HOME, else where the java of
// PATH leads to.
func javaHomes(get func(string) string) []string {
	if home := get("JAVA_HOME"); home != "" {
		return []string{home}
	}
	for _, dir := range filepath.SplitList(get("PATH")) {
		if java, err := exec.LookPath(filepath.Join(dir, "java")); err == nil && filepath.IsAbs(java) {
			if java, err = filepath.EvalSymlinks(java); err == nil {
				return []string{filepath.Dir(filepath.Dir(java))}
			}
		}
	}
	return nil
}

// readStore reads the certificates that a Java key store trusts, PKCS #12 or JKS.
func readStore(name, password string) (*certs, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxBundle {
		return nil, errors.New("it is not a plain file of a store's size")
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if isJKS(b) {
		return readJKS(b)
	}
	for _, p := range []string{password, "", "changeit"} { // the last is what JDKs come with
		var list []*x509.Certificate
		if list, err = pkcs12.DecodeTrustStore(b, p); err == nil {
			c := &certs{}
			for _, cert := range list {
				c.add(cert.Raw)
			}
			return c, nil
		}
	}
	return nil, err
}

// trustStore writes a PKCS #12 store for Java. It has no password: a password on what
// is public would only be one more thing to get wrong. Certificates that Go cannot
// parse are left out, and counted.
func trustStore(c *certs) (store []byte, skipped int, err error) {
	var entries []pkcs12.TrustStoreEntry
	for _, der := range c.ders {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			skipped++
			continue
		}
		// Java tells entries apart by their names.
		sum := sha256.Sum256(der)
		entries = append(entries, pkcs12.TrustStoreEntry{Cert: cert, FriendlyName: hex.EncodeToString(sum[:])})
	}
	store, err = pkcs12.Passwordless.EncodeTrustStoreEntries(entries, "")
	return store, skipped, err
}

package clientenv

import (
	"crypto/x509"
	"os"
	"path/filepath"
)

// Where systems keep their roots, as crypto/x509 looks for them: the first file that
// is there, and every folder.
var (
	rootFiles = []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Gentoo, Arch
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
		"/etc/ssl/ca-bundle.pem",                            // openSUSE
		"/etc/pki/tls/cacert.pem",                           // OpenELEC
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL
		"/etc/ssl/cert.pem",                                 // Alpine, macOS
	}
	rootDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

// systemRoots are what this machine trusts, SSL_CERT_FILE and SSL_CERT_DIR in the
// environment included: each replaces its half, as it does in OpenSSL and in Go.
// from says where they were found.
func (p *preparation) systemRoots() (roots *certs, from []string) {
	roots = &certs{}
	take := func(path string, wanted func(der []byte) bool) bool {
		found, err := p.read(path)
		if err != nil {
			return false
		}
		before := len(roots.ders)
		for _, der := range found.ders {
			if wanted(der) {
				roots.add(der)
			}
		}
		if len(roots.ders) > before {
			from = append(from, path)
		}
		return true
	}
	every := func([]byte) bool { return true }
	if f := p.get("SSL_CERT_FILE"); f != "" {
		take(f, every)
	} else {
		for _, f := range rootFiles {
			if fi, err := os.Stat(f); err == nil && fi.Mode().IsRegular() && take(f, every) {
				break
			}
		}
	}
	if d := p.get("SSL_CERT_DIR"); d != "" {
		for _, d := range filepath.SplitList(d) {
			take(d, every)
		}
		return roots, from
	}
	for _, d := range rootDirs {
		take(d, isAuthority)
	}
	return roots, from
}

// isAuthority leaves out what else lies in the system's folder, such as the
// certificate that Debian makes for the machine itself.
func isAuthority(der []byte) bool {
	cert, err := x509.ParseCertificate(der)
	return err == nil && (cert.IsCA || cert.Version < 3)
}

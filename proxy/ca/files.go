package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Names of an authority's files in its folder.
const (
	CertFile = "ca.pem"
	KeyFile  = "ca-key.pem"
)

// UserDir is where a user's own authority belongs: fencepost/ca in the folder for
// state of the XDG base directory specification.
func UserDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the specification: a relative one is ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("cannot tell where your authority is: %w; set XDG_STATE_HOME", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "fencepost", "ca"), nil
}

// Open reads the authority of a folder. It refuses one that clients would not accept
// and one whose key others can read. Where there is none, the error is
// fs.ErrNotExist.
func Open(dir string) (*Authority, error) {
	a, err := open(dir, time.Now)
	if err != nil {
		return nil, fmt.Errorf("cannot use the authority in %s: %w", dir, err)
	}
	return a, nil
}

func open(dir string, now func() time.Time) (*Authority, error) {
	certFile, keyFile := filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile)
	if err := checkDir(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; make one with `fencepost ca init --dir %s`", err, dir)
	} else if err != nil {
		return nil, err
	}
	cert, err := readCert(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, kerr := os.Lstat(keyFile); kerr == nil {
			return nil, fmt.Errorf("%w, but there is a key: making the authority was interrupted; `fencepost ca init --dir %s` goes on with it", err, dir)
		}
		return nil, fmt.Errorf("%w; make one with `fencepost ca init --dir %s`", err, dir)
	} else if err != nil {
		return nil, err
	}
	key, err := readKey(keyFile, cert)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; the certificate is of no use without it: bring it back, or move the certificate away and make a new authority with `fencepost ca init`", err)
	} else if err != nil {
		return nil, err
	}
	a, err := newAuthority(cert, key, now)
	if err != nil {
		return nil, err
	}
	a.info.CertFile, a.info.KeyFile = certFile, keyFile
	return a, nil
}

// Describe reads the certificate of a folder and not the key: it is for who only
// wants to know or to trust it. problem is why a proxy could not use the authority,
// as far as can be told from here; fs.ErrPermission is none, since another user may
// have the key.
func Describe(dir string) (info Info, certificate []byte, problem, err error) {
	cert, err := readCert(filepath.Join(dir, CertFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; make one with `fencepost ca init --dir %s`", err, dir)
	}
	if err != nil {
		return Info{}, nil, nil, fmt.Errorf("cannot read the authority in %s: %w", dir, err)
	}
	info = describe(cert)
	info.CertFile, info.KeyFile = filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile)
	if _, problem = Open(dir); errors.Is(problem, fs.ErrPermission) {
		problem = nil
	}
	return info, certPEM(cert), problem, nil
}

// readCert reads the one certificate of an authority.
func readCert(name string) (*x509.Certificate, error) {
	text, _, err := readFile(name)
	if err != nil {
		return nil, err
	}
	var found []byte
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s holds a %s; it must hold the certificate alone, since it is given to clients", name, b.Type)
		}
		if found != nil {
			return nil, fmt.Errorf("%s holds more than one certificate; it must hold the authority's alone", name)
		}
		found = b.Bytes
	}
	if found == nil {
		return nil, fmt.Errorf("%s holds no certificate in PEM", name)
	}
	cert, err := x509.ParseCertificate(found)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return cert, nil
}

// readKey reads the key of an authority. cert is the certificate it must fit.
func readKey(name string, cert *x509.Certificate) (crypto.Signer, error) {
	text, err := readPrivate(name)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM(cert), text)
	if err != nil {
		return nil, fmt.Errorf("%s is not the key of %s: %w", name, CertFile, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok { // unreachable with the keys that X509KeyPair knows
		return nil, fmt.Errorf("%s holds a key that cannot sign", name)
	}
	return signer, nil
}

// readPrivate reads a file that nobody but its owner may read.
func readPrivate(name string) ([]byte, error) {
	text, fi, err := readFile(name)
	if err != nil {
		return nil, err
	}
	owner := -1
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		owner = int(st.Uid)
	}
	if openToOthers(fi.Mode(), owner, os.Geteuid()) {
		return nil, fmt.Errorf("%s can be read by others (mode %04o); whoever has it can pass for any host: chmod 600 %[1]s, and make a new authority if somebody may have read it", name, fi.Mode().Perm())
	}
	return text, nil
}

// openToOthers reports whether a private file can be read or written by others than
// its owner. A file of root's that a service reads by its group is the form in which
// Kubernetes and systemd hand out secrets; the service can't change that mode.
func openToOthers(mode fs.FileMode, owner, user int) bool {
	others := fs.FileMode(0o077)
	if owner == 0 && user != 0 {
		others = 0o037
	}
	return mode.Perm()&others != 0
}

// readFile reads a small regular file. It does not wait for a writer of a pipe.
func readFile(name string) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	const most = 1 << 20
	if !fi.Mode().IsRegular() || fi.Size() > most {
		return nil, nil, fmt.Errorf("%s is not a plain file of a certificate's or key's size", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	return b, fi, err
}

// checkDir refuses a folder in which others can exchange the files. A sticky one is
// fine: they can't there.
func checkDir(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a folder", dir)
	}
	if fi.Mode().Perm()&0o022 != 0 && fi.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others can write to %s (mode %04o) and exchange the authority: chmod go-w %[1]s", dir, fi.Mode().Perm())
	}
	return nil
}

// parseKey reads a key that Init wrote.
func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	b, _ := pem.Decode(text)
	if b == nil || b.Type != "PRIVATE KEY" {
		return nil, errors.New("it holds no private key in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, errors.New("its private key cannot be read")
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, errors.New("its private key is not for ECDSA on P-256")
	}
	return ec, nil
}

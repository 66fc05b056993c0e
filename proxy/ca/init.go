package ca

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"fencepost/proxy/internal/failpoint"
)

// ErrExists is returned by Init where there is an authority already.
var ErrExists = errors.New("there is an authority already")

// Init makes an authority in a folder, which is created where there is none (mode
// 0700). It overwrites nothing: ErrExists where there is one. What an earlier Init
// left that did not come to its end, it finishes or says how to repair.
func Init(dir string, o Options) (*Info, error) {
	info, err := initialise(dir, o)
	if err != nil {
		return nil, fmt.Errorf("cannot make an authority in %s: %w", dir, err)
	}
	return info, nil
}

// OpenOrInit opens the authority of a folder, and makes one where there is none. Of
// several processes that do so at once one makes it and all get the same. One that
// expired is an error, as for Open: clients may have been told to trust it.
func OpenOrInit(dir string, o Options) (*Authority, error) {
	a, err := Open(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if _, err := Init(dir, o); err != nil && !errors.Is(err, ErrExists) {
		return nil, err
	}
	return Open(dir)
}

func initialise(dir string, o Options) (*Info, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Nobody else's Init is at work from here on.
	certFile, keyFile := filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile)
	if _, err := os.Lstat(certFile); err == nil {
		return nil, fmt.Errorf("%w (%s); nothing was changed. To replace it, move %s and %s away first: clients that trust it will refuse the new one until they are given its certificate", ErrExists, certFile, CertFile, KeyFile)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	failpoint.Hit("ca.key.before")
	key, created, err := takeKey(keyFile)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("ca.key.after")
	cert, err := newRoot(o, key, time.Now())
	if err == nil {
		err = writeCert(certFile, cert)
	}
	if err != nil {
		if created { // by this call, and nobody was ever told to trust it
			os.Remove(keyFile)
		}
		return nil, err
	}
	info := describe(cert)
	info.CertFile, info.KeyFile = certFile, keyFile
	return &info, syncDir(dir)
}

// takeKey writes a new key, or reads the one of an Init that was interrupted.
func takeKey(name string) (key *ecdsa.PrivateKey, created bool, err error) {
	fi, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if key, err = newKey(); err == nil {
			err = writeKey(name, key)
		}
		return key, err == nil, err
	case err != nil:
		return nil, false, err
	case !fi.Mode().IsRegular():
		return nil, false, fmt.Errorf("%s is there and not a plain file; remove it", name)
	}
	text, err := readPrivate(name)
	if err != nil {
		return nil, false, err
	}
	if key, err = parseKey(text); err != nil {
		return nil, false, fmt.Errorf("%s is there without a certificate, and cannot be used: %w. If an earlier `fencepost ca init` was interrupted, remove it and try again", name, err)
	}
	return key, false, nil
}

func writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// Created exclusively: not a file, a link or a pipe that somebody put there.
	if err := writeNew(name, &pem.Block{Type: "PRIVATE KEY", Bytes: der}, 0o600); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// writeCert gives the certificate its name when it is whole and on disk.
func writeCert(name string, cert *x509.Certificate) error {
	part := name + ".new"
	// What an interrupted Init left: under the lock it is nobody's.
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeNew(part, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}, 0o644); err != nil {
		return err
	}
	failpoint.Hit("ca.cert.before")
	if err := os.Rename(part, name); err != nil {
		os.Remove(part)
		return err
	}
	return nil
}

// writeNew creates a file, and leaves none behind when it fails.
func writeNew(name string, b *pem.Block, mode fs.FileMode) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(name)
		}
	}()
	// The mode is as asked for, whatever the umask is.
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if _, err = f.Write(pem.EncodeToMemory(b)); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// lock keeps other processes' Init out of the folder. The lock goes with the
// process, however it ends.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	const patience, step = 10 * time.Second, 20 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(step) {
		err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { d.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			d.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("another process has been making one for %v", patience)
			}
			return nil, fmt.Errorf("cannot lock the folder: %w", err)
		}
	}
}

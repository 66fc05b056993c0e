package front

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Certificate is a certificate from two PEM files that may be exchanged while it
// is in use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu    sync.Mutex
	cert  *tls.Certificate
	stamp stamp
	// failed is the stamp of files that could not be used, once complained says that
	// there are some: it is said once.
	failed     stamp
	complained bool
	looked     time.Time
}

// stamp tells two versions of the files from each other.
type stamp struct {
	certTime, keyTime time.Time
	certSize, keySize int64
}

// lookEvery is how old the knowledge about the files may be.
const lookEvery = time.Second

// LoadCertificate reads a certificate chain and its key.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	// The stamp is taken first: a change in between is seen at the next look.
	var err error
	if c.stamp, err = c.stat(); err != nil {
		return nil, err
	}
	if c.cert, err = c.load(); err != nil {
		return nil, err
	}
	c.looked = time.Now()
	return c, nil
}

func (c *Certificate) load() (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot use certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	return &cert, nil
}

func (c *Certificate) stat() (stamp, error) {
	cert, err := os.Stat(c.certFile)
	if err != nil {
		return stamp{}, err
	}
	key, err := os.Stat(c.keyFile)
	if err != nil {
		return stamp{}, err
	}
	return stamp{cert.ModTime(), key.ModTime(), cert.Size(), key.Size()}, nil
}

// Get is for tls.Config.GetCertificate. Files that changed are read again. While
// they do not fit each other (one is written, the other not yet), the certificate
// that was in use stays in use.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.cert, nil
	}
	c.looked = time.Now()
	s, err := c.stat()
	if s == c.stamp || s == c.failed && c.complained {
		return c.cert, nil
	}
	var cert *tls.Certificate
	if err == nil {
		cert, err = c.load()
	}
	if err != nil {
		c.failed, c.complained = s, true
		c.log.Warn("the listener's certificate changed and cannot be used; the one before stays in use", "error", err)
		return c.cert, nil
	}
	c.cert, c.stamp, c.complained = cert, s, false
	c.log.Info("the listener's certificate was read again", "file", c.certFile, "expires", cert.Leaf.NotAfter)
	return c.cert, nil
}

package clientenv

import (
	"bytes"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// certs are certificates in their first order, each once.
type certs struct {
	ders [][]byte
	seen map[[sha256.Size]byte]bool
}

// add takes one more. What is not DER at all would make some clients refuse the whole
// bundle. What Go cannot parse, others may.
func (c *certs) add(der []byte) {
	var whole asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &whole); err != nil || len(rest) > 0 {
		return
	}
	if c.seen == nil {
		c.seen = make(map[[sha256.Size]byte]bool)
	}
	if sum := sha256.Sum256(der); !c.seen[sum] {
		c.seen[sum] = true
		c.ders = append(c.ders, der)
	}
}

func (c *certs) addAll(other *certs) {
	for _, der := range other.ders {
		c.add(der)
	}
}

// addPEM takes the certificates out of a text. Whatever else is in it stays behind:
// keys above all.
func (c *certs) addPEM(text []byte) {
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			return
		}
		if b.Type == "CERTIFICATE" {
			c.add(b.Bytes)
		}
	}
}

// maxBundle bounds a file of certificates. The largest that are in use have some
// hundred KiB.
const maxBundle = 16 << 20

// addFile reads a bundle, or a folder of them.
func (c *certs) addFile(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		return c.addDir(path)
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxBundle {
		return fmt.Errorf("%s is not a plain file of a bundle's size", path)
	}
	text, err := os.ReadFile(path)
	c.addPEM(text)
	return err
}

// addDir reads a folder as OpenSSL's is: one certificate a file, with links to it
// under names that OpenSSL looks for.
func (c *certs) addDir(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if e.Type()&fs.ModeSymlink != 0 {
			if to, err := os.Readlink(name); err == nil && filepath.Base(to) == to {
				continue // within the folder: that file comes by itself
			}
		}
		if fi, err := os.Stat(name); err == nil && fi.Mode().IsRegular() && fi.Size() <= maxBundle {
			if text, err := os.ReadFile(name); err == nil {
				c.addPEM(text)
			}
		}
	}
	return nil
}

// pem writes a bundle.
func (c *certs) pem() []byte {
	var b bytes.Buffer
	for _, der := range c.ders {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // a Buffer takes all
	}
	return b.Bytes()
}

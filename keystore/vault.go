package keystore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Vault gives recorded responses the form in which they rest in a ledger:
// compressed, and sealed so that nobody reads them who has the ledger and not the
// key. Records, with their keys, targets, fingerprints and history, are not sealed;
// a response's body, header, trailer and digest are.
//
// A sealed part is AES-256-GCM under a key made for its operation alone
// (HKDF-SHA-256), with a random nonce, and bound to its operation and its place in
// the record: a part that was moved does not open.
//
// It is safe for concurrent use.
type Vault struct {
	keys         []SealKey
	compressFrom int64
	zip          *zstd.Encoder
	unzip        *zstd.Decoder
}

// SealKey is a key that seals responses.
type SealKey struct {
	// ID names the key in records: 1 to 32 letters, digits, dots, underscores or
	// hyphens. It is never used again for another key.
	ID string
	// Key has 32 bytes.
	Key []byte
}

// VaultOptions say what a Vault does.
type VaultOptions struct {
	// Keys: the first seals, all of them open. None: nothing is sealed.
	Keys []SealKey
	// CompressFrom is the size in bytes from which a body is compressed. 0: never.
	CompressFrom int64
}

// codingZstd marks a body that is stored compressed (RFC 8878).
const codingZstd = "zstd"

// maxStoredBody bounds what a compressed body may become when it is read.
const maxStoredBody = 1 << 30

// NewVault returns a Vault. Errors say which key is not usable.
func NewVault(o VaultOptions) (*Vault, error) {
	v := &Vault{compressFrom: o.CompressFrom}
	for _, k := range o.Keys {
		switch {
		case !isKeyID(k.ID):
			return nil, fmt.Errorf("keystore: a sealing key's id must be 1 to 32 letters, digits, dots, underscores or hyphens, and %q is not", k.ID)
		case len(k.Key) != 32:
			return nil, fmt.Errorf("keystore: sealing key %s has %d bytes; AES-256 takes 32", k.ID, len(k.Key))
		case v.key(k.ID) != nil:
			return nil, fmt.Errorf("keystore: two sealing keys have the id %s", k.ID)
		}
		v.keys = append(v.keys, SealKey{k.ID, slices.Clone(k.Key)})
	}
	var err error
	if v.zip, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true)); err != nil {
		return nil, err
	}
	v.unzip, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxStoredBody), zstd.WithDecoderLowmem(true))
	return v, err
}

func isKeyID(s string) bool {
	return len(s) >= 1 && len(s) <= 32 && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
	})
}

func (v *Vault) key(id string) []byte {
	for i := range v.keys {
		if v.keys[i].ID == id {
			return v.keys[i].Key
		}
	}
	return nil
}

// Store returns an outcome of operation r and its body in the form to be written.
// What it is given stays as it is.
func (v *Vault) Store(r *Record, o *Outcome, body []byte) (*Outcome, []byte, error) {
	if !o.Retained {
		body = nil
	}
	out := *o
	if v.compressFrom > 0 && int64(len(body)) >= v.compressFrom && !encoded(o.Header) {
		if small := v.zip.EncodeAll(body, make([]byte, 0, len(body)/2)); len(small) < len(body)-len(body)/8 {
			out.Coding, body = codingZstd, small
		}
	}
	if len(v.keys) == 0 {
		return &out, body, nil
	}
	k := &v.keys[0]
	c, err := cipherFor(k.Key, r)
	if err != nil {
		return nil, nil, err
	}
	var fields encoder
	fields.outcomeDetail(&out)
	out.SealKey = k.ID
	out.Sealed = seal(c, partDetail, fields)
	out.Header, out.Trailer, out.BodySHA256 = nil, nil, ""
	if len(body) > 0 {
		body = seal(c, partBody, body)
	}
	return &out, body, nil
}

// encoded reports whether a body is compressed already by what its header says.
func encoded(h []Field) bool {
	return slices.ContainsFunc(h, func(f Field) bool { return f.Name == "Content-Encoding" })
}

// ErrSealed says that a stored response cannot be opened here.
var ErrSealed = errors.New("the stored response cannot be opened")

// Open undoes Store for the outcome of rep and its body. Where errors.Is(err,
// [ErrSealed]) the response is there and this Vault has not the key, or what is
// stored was changed; any other error means that it is damaged.
func (v *Vault) Open(rep *Reply) error {
	o := rep.Record.Outcome
	if o == nil || o.SealKey == "" && o.Coding == "" {
		return nil
	}
	out, body := *o, rep.Body
	if o.SealKey != "" {
		key := v.key(o.SealKey)
		if key == nil {
			return fmt.Errorf("%w: it is sealed with key %q, which is not configured", ErrSealed, o.SealKey)
		}
		c, err := cipherFor(key, &rep.Record)
		if err != nil {
			return err
		}
		detail, err := open(c, partDetail, o.Sealed)
		if err == nil && len(body) > 0 {
			body, err = open(c, partBody, body)
		}
		if err != nil {
			return fmt.Errorf("%w: it does not fit sealing key %q; the key was exchanged under the same id, or the ledger was changed", ErrSealed, o.SealKey)
		}
		if err := each(string(detail), detail, out.set); err != nil {
			return err
		}
	}
	if o.Coding != "" && len(body) > 0 {
		if o.Coding != codingZstd {
			return fmt.Errorf("keystore: the body is stored as %q, which this version does not know", o.Coding)
		}
		var err error
		if body, err = v.inflate(body, o.BodySize); err != nil {
			return fmt.Errorf("keystore: the stored body of operation %q is damaged: %w", rep.Record.Key, err)
		}
	}
	out.Coding, out.SealKey, out.Sealed = "", "", nil
	rep.Record.Outcome, rep.Body = &out, body
	return nil
}

// inflate undoes the compression of a body that had size bytes.
func (v *Vault) inflate(b []byte, size int64) ([]byte, error) {
	// The frame says how large it gets: nothing is unpacked that says otherwise.
	var h zstd.Header
	if err := h.Decode(b); err != nil {
		return nil, err
	}
	if size < 0 || size > maxStoredBody || !h.HasFCS || h.FrameContentSize != uint64(size) {
		return nil, errDamaged
	}
	plain, err := v.unzip.DecodeAll(b, make([]byte, 0, size))
	if err == nil && int64(len(plain)) != size {
		err = errDamaged
	}
	return plain, err
}

// The parts of a response that are sealed by themselves.
const (
	partDetail byte = 1 // header, trailer, digest
	partBody   byte = 2
)

// cipherFor makes the cipher of one operation. A key of its own keeps the number of
// messages under one key small, whatever the ledger grows to.
func cipherFor(key []byte, r *Record) (cipher.AEAD, error) {
	info := []byte("fencepost response 1")
	for _, s := range []string{r.Scope, r.Key, r.Operation} {
		info = binary.BigEndian.AppendUint32(info, uint32(len(s)))
		info = append(info, s...)
	}
	own, err := hkdf.Key(sha256.New, key, nil, string(info), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func seal(c cipher.AEAD, part byte, plain []byte) []byte {
	return c.Seal(make([]byte, 0, len(plain)+c.Overhead()), nil, plain, []byte{part})
}

func open(c cipher.AEAD, part byte, sealed []byte) ([]byte, error) {
	return c.Open(nil, nil, sealed, []byte{part})
}

package config

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"fencepost/keystore"
)

// Vault makes what puts responses into the form in which they rest.
func (l *Ledger) Vault() (*keystore.Vault, error) {
	o := keystore.VaultOptions{CompressFrom: int64(l.CompressFrom)}
	for _, s := range l.Seal {
		key, err := sealKey(string(s.Key))
		if err != nil {
			return nil, err
		}
		o.Keys = append(o.Keys, keystore.SealKey{ID: s.ID, Key: key})
	}
	return keystore.NewVault(o)
}

// sealKey reads 32 bytes in base64, as `openssl rand -base64 32` prints them, or in
// hexadecimal. The error does not repeat them.
func sealKey(s string) ([]byte, error) {
	for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString, base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString} {
		if b, err := decode(s); err == nil && len(b) == 32 {
			return b, nil
		}
	}
	return nil, errors.New("is not 32 bytes in base64 or hexadecimal; make one with `openssl rand -base64 32`")
}

func (l *Ledger) validateSeal(k *checker) {
	ids := make(map[string]bool)
	for i, s := range l.Seal {
		path := fmt.Sprintf("ledger.seal[%d]", i)
		key, err := sealKey(string(s.Key))
		if err != nil {
			if k.ok(path+".key") && !strings.HasPrefix(string(s.Key), unset) {
				k.fail(path+".key", "%v", err)
			}
			key = make([]byte, 32)
		}
		if ids[s.ID] {
			k.fail(path+".id", "is already taken; an id names one key for ever")
		} else if _, err := keystore.NewVault(keystore.VaultOptions{Keys: []keystore.SealKey{{ID: s.ID, Key: key}}}); err != nil {
			k.fail(path+".id", "must be 1 to 32 letters, digits, dots, underscores or hyphens")
		}
		ids[s.ID] = true
	}
}

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest tells two configurations apart. It covers everything, so it says nothing
// about any part.
func (c *Config) Digest() string {
	b, err := json.Marshal(c)
	if err != nil {
		return "" // unreachable: it is made of plain values
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

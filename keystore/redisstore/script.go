package redisstore

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

// script is one transition, named by the hash of its text: two versions of
// Fencepost on one server have two, and neither disturbs the other.
type script struct {
	name string
	text string
	// sha is the hash, boxed once as an argument.
	sha any
	// keys is how many KEYS the script takes, boxed.
	keys any
}

var (
	//go:embed lua/prelude.lua
	preludeLua string
	//go:embed lua/write.lua
	writeLua string
	//go:embed lua/insert.lua
	insertLua string
	//go:embed lua/swap.lua
	swapLua string
	//go:embed lua/get.lua
	getLua string
	//go:embed lua/peek.lua
	peekLua string
	//go:embed lua/delete.lua
	deleteLua string
	//go:embed lua/lease.lua
	leaseLua string
	//go:embed lua/swaplease.lua
	swapLeaseLua string
	//go:embed lua/list.lua
	listLua string
	//go:embed lua/look.lua
	lookLua string
	//go:embed lua/flag.lua
	flagLua string
	//go:embed lua/ack.lua
	ackLua string
	//go:embed lua/propose.lua
	proposeLua string
	//go:embed lua/ledger.lua
	ledgerLua string
	//go:embed lua/found.lua
	foundLua string
)

var (
	insertScript    = newScript("insert", 5, writeLua, insertLua)
	swapScript      = newScript("swap", 5, writeLua, swapLua)
	getScript       = newScript("get", 2, getLua)
	peekScript      = newScript("list", 2, peekLua)
	deleteScript    = newScript("delete", 4, deleteLua)
	leaseScript     = newScript("lease", 2, leaseLua)
	swapLeaseScript = newScript("swap lease", 2, swapLeaseLua)
	listScript      = newScript("list", 2, listLua)
	lookScript      = newScript("look", 2, lookLua)
	flagScript      = newScript("flag", 2, flagLua)
	ackScript       = newScript("acknowledge", 2, ackLua)
	proposeScript   = newScript("propose", 2, proposeLua)
	ledgerScript    = newScript("ask the ledger", 2, ledgerLua)
	foundScript     = newScript("found the scope", 2, foundLua)
)

func newScript(name string, keys int, parts ...string) *script {
	text := preludeLua
	for _, p := range parts {
		text += p
	}
	sum := sha1.Sum([]byte(text))
	return &script{name: name, text: text, sha: hex.EncodeToString(sum[:]), keys: keys}
}

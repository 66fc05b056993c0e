package sqlitestore

import (
	"hash/maphash"
	"sync/atomic"

	"fencepost/keystore"
)

// known remembers some of the operations that exist, by their hashes. An insert
// of one of them is most likely a repetition, which a reader can answer without
// the writer and its sync. It is a hint: what is true is in the file, and who
// finds nothing there goes to the writer.
type known struct{ slots [1 << 16]atomic.Uint64 }

var knownSeed = maphash.MakeSeed()

func hash(id keystore.ID) uint64 {
	var h maphash.Hash
	h.SetSeed(knownSeed)
	h.WriteString(id.Scope)
	h.WriteByte(0)
	h.WriteString(id.Key)
	return h.Sum64() | 1<<63 // never the empty slot's
}

func (k *known) add(id keystore.ID) {
	h := hash(id)
	if slot := &k.slots[h%uint64(len(k.slots))]; slot.Load() != h {
		slot.Store(h)
	}
}

func (k *known) has(id keystore.ID) bool {
	h := hash(id)
	return k.slots[h%uint64(len(k.slots))].Load() == h
}

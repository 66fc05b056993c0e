// Package storetest holds what every ledger store must do, as tests, and a fake
// store that does it in memory.
//
// [Run] is the conformance suite: one table of laws, each with the reason for
// it, run against a fresh store. sqlitestore, redisstore and [Fake] all pass it.
// [Fake] exists for faults: it can fail before or after a write, and it polices
// its caller.
package storetest

// Package redisstore is a ledger in Redis, shared by any number of proxies. It
// serves a single server, Sentinel and Cluster, from Redis 6.2 on.
//
// # Keys
//
// Everything of one scope lies in one hash slot, so each transition is one
// script that changes record, body, indexes, lease and counters together:
//
//	fencepost:{scope}:o:<key>   operation: version, writer, state, updated,
//	                            deadline, expires, rec (keystore.Encode), body
//	fencepost:{scope}:states    sorted set of keys by state * 2^44 + updated: a key
//	                            has one score, so it is in one state
//	fencepost:{scope}:due       sorted set of the keys that expire, by expires
//	fencepost:{scope}:l:<run>   lease: owner, token, acquired, expires, version, writer
//	fencepost:{scope}:meta      gen, n and i:<instance> (writes counted), ack, bad,
//	                            again
//	fencepost:scopes            set of scopes, for lists
//	fencepost:state             meta of the ledger as a whole: gen, ack, bad, next,
//	                            and s:<scope> for each scope that has its meta
//
// Scopes that begin with ~ are the probes of Check, new ones in each generation. No key has a TTL: what may
// go is deleted by the sweeper, by its version. Tokens are 20 digits and never
// pass through a double. The scripts stand in lua/, each with its KEYS, ARGV and
// returns; they are loaded where a server does not know them, which proves that
// nothing ran.
//
// # What is trusted
//
// The server's clock, and that it keeps what it acknowledged. The second holds
// as far as it is set up to:
//
//	setting                                 what it can lose (measured, Redis 7.0)
//	appendfsync always, one server          nothing: 0 of 16,144 in 5 power cuts
//	appendfsync everysec                    nothing in a crash of Redis (0 of 21,177),
//	                                        a second in a power cut (95,968 of 172,484)
//	no append-only file                     everything since the last snapshot
//	replicas, not waited for                a cut-off primary: 372 of 372; a planned
//	                                        SENTINEL FAILOVER: 5,095 of 43,124, with no
//	                                        error anywhere
//	min-replicas-to-write 1, max-lag 1      165 of 165 that it still accepted
//	Options.Replicas 1 (WAIT)               0 of what a send followed
//	maxmemory-policy allkeys-lru            1,814 of 2,000 old operations granted again
//	maxmemory-policy volatile-lru           1,974 of 2,000, with TTLs
//	maxmemory-policy noeviction             nothing: a full server refuses
//
// So: appendonly yes, appendfsync always and noeviction for one server; the same
// and Options.Replicas of at least 1 where a replica may be promoted. WAIT is no
// consensus: a replica that confirmed must be the one that is promoted. With one
// replica, or with Replicas equal to their number, it is.
//
// Only writes that a send follows wait. Others may be lost in a failover all the
// same: a reservation, which costs nothing, or an outcome, whose operation then
// reads UNKNOWN. Both count as a rollback.
//
// # A ledger that went back in time
//
// Three marks show it, and each holds where the others do not.
//
// The generation is a random name that an empty ledger gets at its first use. It
// stands in fencepost:state and in the meta of each scope, and every Store
// remembers it from its first contact, soon after Open. insert.lua and swap.lua
// write what may lead to a send only where the scope has the generation that the
// caller knows, so a flush is found by any process at its next write into any
// scope, before the send and at no cost. A process that uses a scope for the
// first time, or again after a server changed, asks fencepost:state: a scope that
// is named there was lost where it has no generation, also on one node of a
// cluster. Other than that only a scope that was never named is founded.
//
// The run_id. Each new connection asks the server for it before anything else
// goes over it, and so does each check. A server that restarted is trusted where
// it syncs every write (appendonly yes with appendfsync always or Options.AOF) and
// did so when last looked at; what cannot be read counts as not. Another server
// in its place, up since before it was last looked at, was promoted, and is
// trusted with Options.Replicas, in which case the counters still judge. Without,
// every failover of a single address or of Sentinel is an alarm.
//
// The counters. Every script that writes counts, for its scope and for the
// instance that runs it, and every reply brings both counts. A Store that gets
// less than it knew has found a failover that dropped writes or a restore. It
// finds the loss of its own writes at its next call in their scope, and looks at
// all its scopes after any trouble with a connection and at every check.
//
// A Store that finds any of this refuses everything that may lead to a send, the
// call that found it included, and tells the other processes through meta and
// fencepost:state, until an operator calls [Store.AcknowledgeRollback], which
// gives a new generation; recording results and reading go on.
//
// What is not found:
//
//   - What no living process remembers: a flush or a restore while none ran, or
//     before a new one made its first contact. A process that starts on a flushed
//     ledger before another has told it takes it for a new one; the others find
//     its generation.
//   - An older append-only file put in place of the newer one while the server was
//     down, an older state brought back without a restart (DEBUG RELOAD, RESTORE),
//     and the deletion of single keys. Only the counters see some of it.
//   - A failover inside a cluster, and one with Options.Replicas where another
//     replica was promoted than the one that confirmed: only the counters judge,
//     so another process may let a forgotten key pass until it is told.
//   - A restart on a server that does not let its user run INFO, and one behind
//     something that keeps the connections, until the next check.
//   - In the moment when the alarm is raised, another call of the same process
//     that is under way may still write. It is not sent, and reads RESERVED or,
//     after its deadline, UNKNOWN.
//
// A scope that no list and no living process names at an acknowledgement keeps its
// old generation, and is an alarm at its next use: acknowledge again. A ledger of
// before there were generations has scopes and no generation, which is an alarm,
// once.
//
// # Lost replies
//
// go-redis would run a script again up to four times where its reply is lost,
// the cluster client even with MaxRetries -1. Here every script is a command
// that neither client re-runs, and redirects are followed by this package: a try
// runs at most once. A try of which it is not known whether it ran is repeated
// once, where time is left: a write recognises itself by its writer, so the
// repeat turns the lost reply into an answer. Delete is not repeated, since its
// key may be new by then. What a reply, or the absence of a single byte on a
// connection, proves not to have run is reported with [keystore.ErrNotWritten].
//
// # Round trips
//
// Calls share round trips: at most two flights are out to a server for calls
// that do not wait for replicas, and two for those that do. A call that finds a
// free flight goes at once and alone; what queues meanwhile goes together. A
// caller whose context ends leaves; the flight does not.
//
// # The server's user
//
//	ACL SETUSER fencepost on >password ~fencepost* resetchannels -@all
//	  +evalsha +script|load +time +hmget +hget +hset +hdel +hincrby
//	  +zadd +zrem +zrangebyscore +del +sadd +smembers +wait +info
//
// and +waitaof with Options.AOF, +select with a database other than 0, and
// +cluster|slots on a cluster. +config|get lets Check see appendfsync and
// min-replicas-to-write.
package redisstore

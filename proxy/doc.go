// Package proxy is everything of Fencepost that speaks HTTP.
//
// # The life of a governed request
//
//	client ──▶ route ──▶ identify ──▶ spool body ──▶ fingerprint
//	                                                    │
//	      ┌───────────────── exchange.go ───────────────┴───┐
//	      │ claim ─▶ connect ─▶ mark ─▶ send once ─▶ settle │
//	      └───────────────────────┬─────────────────────────┘
//	client ◀── reply ◀────────────┘
//
// The exchange is one function, read from top to bottom ([exchange.run]); each
// step says what a crash there leaves behind. Which change of a record is
// allowed is keystore.Next's to say; which status an outcome becomes is decided
// by the table in problem.go alone.
//
// # Where requests come from
//
//	reverse listener ─▶ Proxy.ServeHTTP ──────────────┐
//	egress listener ──▶ Egress ─┬─ absolute-form ─────┼─▶ identify ─▶ govern or pass
//	                            ├─ CONNECT, looked into ┘
//	                            └─ CONNECT, a tunnel ──▶ bytes
//
// Both stand on internal/front, which watches the framing of what clients send and
// ends TLS. How upstreams are reached is a way (ways.go): one for each ConnectRule,
// shared by routes and kept over reloads; the egress proxy's ways dial under a
// guard (guard.go) that judges the address itself.
//
// # What is not governed
//
// Safe methods and routes with enforcement off are passed through (pass.go).
// Unsafe methods among them still go through the single-send pool: Go's own
// transport sends a request with an Idempotency-Key again by itself.
//
// # What goes wrong, and what is left
//
//	failure                              sent?   record      caller
//	ledger down at the claim             no      none        503
//	dial, DNS, TLS                       no      free        502 upstream_unreachable
//	ledger down at the mark              no      free later  503
//	reset, close, timeout after bytes    maybe   UNKNOWN     502/504 outcome_unknown
//	answer cut short                     yes     UNKNOWN     the part, broken off
//	ledger down at the record            yes     later       the real answer
//	answer sealed, key gone              no      COMPLETED   503 response_sealed
//	process killed after the mark        maybe   UNKNOWN     a broken connection
//	caller leaves                        yes     COMPLETED   nobody
//
// # Writes that could not be made
//
// An outcome that the ledger would not take stays in memory and is written as
// soon as the ledger is back (backlog.go). Until then, and for ever if the
// process dies first, the record says DISPATCHED and reads UNKNOWN.
package proxy

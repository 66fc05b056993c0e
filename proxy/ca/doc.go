// Package ca is the certificate authority behind intercepted HTTPS: the egress proxy
// ends a client's TLS with a certificate that this authority signed for the host.
//
// # What its key can do
//
// Who has the key can pass for every host towards every client that trusts the
// certificate. So the key stays in one file that only its owner reads, never goes
// into a bundle, a log or an answer, and is worth little where it can be: an
// authority made with [Options.PermitDomains] can only sign for names below those
// domains. Its name constraints are critical, and exclude all IP addresses too,
// because a constraint on names says nothing of addresses (RFC 5280, section
// 4.2.1.10). OpenSSL, GnuTLS, Python, Node and Go honour them. Java does not: it
// takes a trusted certificate as a bare key.
//
// # The files
//
// A folder holds one authority: ca-key.pem (PKCS #8, mode 0600) and ca.pem. Nothing
// overwrites either. [Init] holds a lock on the folder and writes the key first,
// created exclusively, then the certificate, which gets its name when it is whole
// and on disk:
//
//	crash                       left                     the next Init
//	before the key              nothing                  starts over
//	while the key is written    a part of a key          says which file to remove
//	before the certificate      the key                  goes on with that key
//	while it is written         the key, ca.pem.new      the same
//	after                       the authority            refuses: there is one
//
// So a ca.pem always has its key, and a key without one has signed nothing that a
// client was ever told to trust.
//
// # Leaves
//
// [Authority.Leaf] signs for one host: a DNS name or an IP address as the only
// subject alternative name, a key of its own, 72 hours at the most and never longer
// than the authority itself, begun an hour ago because clocks differ. What was
// signed is verified as a client would before it is handed out, so an authority
// that may not sign for a name is an error here that says so, and not a riddle in a
// client's log.
//
// Leaves are kept in memory, as many as were used most recently, and made anew when
// half of their time is over. For one host at most one is made at a time: the other
// connections wait for it.
package ca

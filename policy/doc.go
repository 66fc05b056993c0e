// Package policy holds Fencepost's decisions: which rule governs a request, which
// key it carries, which payload it is, who sent it, and what an answer means.
//
// # What belongs here
//
// A decision is a pure function of its arguments. Nothing in this package reads a
// clock, opens a file or a socket (a body is read from what is given), or keeps state that changes after a constructor
// returned; every type is safe for concurrent use once it is built. That is what
// lets a table test cover every row of every rule. Doing is elsewhere: package
// proxy moves the bytes, package keystore remembers. Neither is imported here.
//
// # The order a request meets the rules
//
//	CheckTarget       is this a path and query that every server reads alike?
//	Table.Match       which Route?
//	BearerToken,
//	Callers.Identify  whose request is it: the scope
//	Route.Governed    does the route bind this request to a key?
//	HasKeyAlias,
//	NamedInConnection,
//	ParseKey          which key: one spelling of it, whatever form it came in
//	Route.Target      the exact bytes that are both hashed and sent
//	Fingerprinter     is a second request with this key the same request?
//	                  (bytes, or what they mean: FingerprintRule.Body)
//	Classify          what does the upstream's status prove?
//	Storable          which fields of the answer may be given to a duplicate?
//
// # Which way a doubt falls
//
// Every rule here errs on one side: doing nothing can be mended, doing a thing
// twice cannot. So the zero value of each enum is its most cautious member, a
// malformed key is an error and never "no key", a path that two servers could read
// in two ways reaches no route when the readings disagree, and a status that
// nobody has classified is ClassUnknown.
//
// # Errors
//
// A refusal's text says what is wrong and what to do about it, because agents act
// on it. It never repeats the refused bytes: they may be a credential that was put
// in the wrong field, or carry control characters into a log. Constructors report
// every problem of their input at once, joined, so that a configuration is mended
// in one go. HTTP statuses and problem documents are package proxy's.
package policy

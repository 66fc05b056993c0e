// Package clientenv makes what a client needs to go through Fencepost's egress proxy
// and to trust its authority: environment variables, and the files that they name.
//
// There is no one variable that every client reads, and each was measured: see the
// table in trust.go. They are of two kinds.
//
//   - Most replace what the client trusts. Such a variable names a bundle: what the
//     client trusted before, and the authority. With the authority alone the client
//     would refuse every host whose connection is tunnelled and not intercepted.
//   - Some add to it. Such a variable names the authority's certificate alone.
//
// What a client trusted before is what its own variable says, where the user has set
// one, else what the variables say that it falls back to, else the system's roots. So
// nobody trusts more than before but for the authority, and a variable that names a
// file that cannot be read still means: nothing.
//
// A tool's own configuration files are left alone, but for two tools whose variable
// would not work otherwise: wget reads no variable with certificates, so it gets a
// wgetrc with the user's lines; npm takes the variables of Node only where no npmrc
// names a file of certificates.
//
// Secrets: the proxy's URL may hold the caller's token. It is in the values of the
// proxy variables and nowhere else: not in JAVA_TOOL_OPTIONS, which every JVM prints,
// not in a file, not in a command line.
package clientenv

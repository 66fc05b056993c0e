// Package config reads Fencepost's YAML configuration.
//
// Reading is strict: a key that is not known, a value of the wrong kind, a
// duplicate, anything that could be a slip of the pen is an error. All errors
// are reported together, each with its line and column, because a person who
// mends a file wants to do it once.
//
// Secrets come from the environment: where [Secret] is the type, and only
// there, ${NAME} stands for the environment variable NAME.
//
// config.example.yaml at the top of the repository documents every key; a test
// reads it and checks that none is missing.
package config

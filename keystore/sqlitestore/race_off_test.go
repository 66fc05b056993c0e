//go:build !race

package sqlitestore

// raceOn makes large tests smaller; see race_on_test.go.
const raceOn = false

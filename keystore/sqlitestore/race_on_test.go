//go:build race

package sqlitestore

// raceOn makes large tests smaller: the race detector slows SQLite, which is Go
// code here, twentyfold.
const raceOn = true

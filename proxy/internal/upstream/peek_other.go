//go:build !unix

package upstream

// spoilt cannot look at the socket here; the read loop notices a moment later.
func (t *tally) spoilt(bool) bool { return false }

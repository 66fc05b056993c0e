//go:build !failpoint

package failpoint

// Hit does nothing in the product and is compiled away.
func Hit(string) {}

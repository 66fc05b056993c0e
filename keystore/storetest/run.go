package storetest

import (
	"testing"
	"time"

	"fencepost/keystore"
)

// Harness is how a store lends itself to the suite.
type Harness struct {
	// Open returns a fresh, empty store that is closed when the test ends.
	Open func(t *testing.T) keystore.Store
	// Reopen closes a store that Open returned as far as it can be closed and
	// opens the same data again. Nil where nothing outlives the store.
	Reopen func(t *testing.T, s keystore.Store) keystore.Store
	// Second opens the same data a second time, beside the first. Nil where the
	// store is exclusive.
	Second func(t *testing.T, s keystore.Store) keystore.Store
	// Advance moves the store's own clock forward.
	Advance func(t *testing.T, s keystore.Store, d time.Duration)
}

// law is one thing that every store does.
type law struct {
	name string
	// why says what breaks where the law does not hold.
	why  string
	test func(t *testing.T, h Harness)
}

// Run checks every law against fresh stores.
func Run(t *testing.T, h Harness) {
	ran := 0
	for _, l := range laws() {
		t.Run(l.name, func(t *testing.T) {
			ran++
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("why it matters: %s", l.why)
				}
			})
			l.test(t, h)
		})
	}
	if want := len(laws()); ran != want && !filtered() {
		t.Errorf("%d of %d laws ran", ran, want)
	}
}

func laws() []law {
	var all []law
	all = append(all, insertLaws()...)
	all = append(all, swapLaws()...)
	all = append(all, guardLaws()...)
	all = append(all, leaseLaws()...)
	all = append(all, listLaws()...)
	all = append(all, lifeLaws()...)
	all = append(all, raceLaws()...)
	return all
}

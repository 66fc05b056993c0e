package storetest_test

import (
	"testing"
	"time"

	"fencepost/keystore"
	"fencepost/keystore/storetest"
)

func TestFakeConforms(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Open: func(t *testing.T) keystore.Store {
			s := storetest.NewFake()
			t.Cleanup(func() { s.Close() })
			return s
		},
		Second:  func(_ *testing.T, s keystore.Store) keystore.Store { return s },
		Advance: func(_ *testing.T, s keystore.Store, d time.Duration) { s.(*storetest.Fake).Advance(d) },
	})
}

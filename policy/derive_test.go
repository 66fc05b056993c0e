package policy

import "testing"

func TestADerivedKeyIsStableAndTellsNothing(t *testing.T) {
	target := Target{Scheme: "https", Host: "api.example.com", Path: "/v1/charges"}
	k := DeriveUpstreamKey("alice", "order-1", target)
	if k != "fp-"+digest("upstream-key", "alice", "order-1", "https", "api.example.com") || len(k) != 35 {
		t.Errorf("%s", k)
	}
	if _, err := ParseKey([]string{k}); err != nil {
		t.Errorf("%s is no key: %v", k, err)
	}
	seen := map[string]bool{k: true}
	for _, other := range []string{
		DeriveUpstreamKey("bob", "order-1", target), DeriveUpstreamKey("alice", "order-2", target),
		DeriveUpstreamKey("alic", "eorder-1", target), DeriveUpstreamKey("alice", "order-1", Target{Scheme: "https", Host: "api.example.org"}),
	} {
		if seen[other] {
			t.Errorf("two keys are one: %s", other)
		}
		seen[other] = true
	}
	for _, other := range []string{DeriveKey("a", "r", "f"), DeriveKey("a", "", "rf"), DeriveKey("a", "r", "g"), DeriveKey("b", "r", "f")} {
		if _, err := ParseKey([]string{other}); err != nil || seen[other] {
			t.Errorf("%s: %v", other, err)
		}
		seen[other] = true
	}
	if k := DeriveKey("a", "r", "f"); k != "derived-"+digest("derived-key", "a", "r", "f") {
		t.Errorf("a derived key is not stable: %s", k)
	}
	// The path is not in it: a retry that a redirect sent elsewhere is another matter.
	if DeriveUpstreamKey("alice", "order-1", Target{Scheme: "https", Host: "api.example.com", Path: "/v2"}) != k {
		t.Error("the path changes the key")
	}
}

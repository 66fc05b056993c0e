package policy

import "testing"

func TestEveryStatusHasItsClass(t *testing.T) {
	notApplied := map[int]bool{401: true, 407: true, 408: true, 425: true, 429: true}
	for status := -1; status <= 1100; status++ {
		want := ClassUnknown
		switch {
		case notApplied[status]:
			want = ClassNotApplied
		case status >= 200 && status <= 299, status >= 300 && status <= 399, status >= 400 && status <= 499:
			want = ClassFinal
		}
		if got := Classify(status); got != want {
			t.Errorf("Classify(%d) = %v, want %v", status, got, want)
		}
	}
}

func TestUnclassifiedIsUnknown(t *testing.T) {
	var zero Class
	if zero != ClassUnknown {
		t.Errorf("the zero Class is %v", zero)
	}
}

func TestClassSpelling(t *testing.T) {
	for c, want := range map[Class]string{
		ClassUnknown: "unknown", ClassFinal: "final", ClassNotApplied: "not_applied", Class(200): "unknown",
	} {
		if got := c.String(); got != want {
			t.Errorf("Class(%d).String() = %q, want %q", uint8(c), got, want)
		}
	}
}

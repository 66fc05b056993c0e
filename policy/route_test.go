package policy

import (
	"testing"
	"time"
)

func TestGoverned(t *testing.T) {
	listed := []string{"POST", "PATCH"}
	for name, tc := range map[string]struct {
		enforce bool
		method  string
		hasKey  bool
		want    bool
	}{
		"listed method with a key":              {true, "POST", true, true},
		"listed method without a key":           {true, "PATCH", false, true},
		"other method passes":                   {true, "PUT", false, false},
		"other method that brings a key":        {true, "PUT", true, true},
		"unknown method that brings a key":      {true, "MKCOL", true, true},
		"listed method in lower case":           {true, "post", false, true},
		"GET with a key":                        {true, "GET", true, false},
		"HEAD with a key":                       {true, "HEAD", true, false},
		"OPTIONS with a key":                    {true, "OPTIONS", true, false},
		"TRACE with a key":                      {true, "TRACE", true, false},
		"get is not GET, so a key governs it":   {true, "get", true, true},
		"enforcement off":                       {false, "POST", false, false},
		"enforcement off, request brings a key": {false, "POST", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := Route{Enforce: tc.enforce, Methods: listed}
			if got := r.Governed(tc.method, tc.hasKey); got != tc.want {
				t.Errorf("Governed(%s, %v) = %v, want %v", tc.method, tc.hasKey, got, tc.want)
			}
		})
	}
}

func TestZeroChoicesAreTheCautiousOnes(t *testing.T) {
	var r Route
	if r.Key.Missing != MissingReject {
		t.Error("a missing key is not rejected by default")
	}
	if r.UpstreamKey.Send != SendSame {
		t.Error("the upstream does not get the key by default")
	}
}

// TestAKeyIsRecognisedForTheListedMethodsOnly, letter by letter.
func TestAKeyIsRecognisedForTheListedMethodsOnly(t *testing.T) {
	for _, tc := range []struct {
		methods []string
		method  string
		want    time.Duration
	}{
		{nil, "POST", time.Hour},
		{nil, "PATCH", time.Hour},
		{[]string{"POST"}, "POST", time.Hour},
		{[]string{"PUT", "POST"}, "POST", time.Hour},
		{[]string{"POST"}, "PATCH", 0},
		{[]string{"POST"}, "post", 0},
	} {
		u := UpstreamKeyRule{Deduplicates: time.Hour, Methods: tc.methods}
		if got := u.Recognises(tc.method); got != tc.want {
			t.Errorf("%v, %s: %v, want %v", tc.methods, tc.method, got, tc.want)
		}
	}
}

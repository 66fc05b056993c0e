package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const (
	tokenA = "aaaaaaaaaaaaaaaa" // 16 bytes, the shortest
	tokenB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestTheTokenDecidesTheScope(t *testing.T) {
	c, err := NewCallers([]Caller{{"billing-agent", tokenA}, {"ops.2_x", tokenB}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		token, scope string
		ok           bool
	}{
		{tokenA, "billing-agent", true},
		{tokenB, "ops.2_x", true},
		{"", "", false},
		{tokenA[:15], "", false},
		{tokenA + "a", "", false},
		{strings.ToUpper(tokenA), "", false},
		{"billing-agent", "", false},
	} {
		if scope, ok := c.Identify(tc.token); scope != tc.scope || ok != tc.ok {
			t.Errorf("Identify(%q) = %q, %v; want %q, %v", tc.token, scope, ok, tc.scope, tc.ok)
		}
	}
}

func TestWithoutCallersThereIsOneScope(t *testing.T) {
	c, err := NewCallers(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", tokenA} {
		if scope, ok := c.Identify(token); scope != ScopeDefault || !ok {
			t.Errorf("Identify(%q) = %q, %v", token, scope, ok)
		}
	}
}

func TestNewCallersRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		callers []Caller
		want    []string // one part of each problem, in order
	}{
		"empty name":                  {[]Caller{{"", tokenA}}, []string{"caller 1: the name must be"}},
		"name with a space":           {[]Caller{{"a b", tokenA}}, []string{"the name must be"}},
		"name that breaks store keys": {[]Caller{{"a{b}", tokenA}}, []string{"the name must be"}},
		"name of 65 characters":       {[]Caller{{strings.Repeat("n", 65), tokenA}}, []string{"the name must be"}},
		"the scope without callers":   {[]Caller{{"Default", tokenA}}, []string{"reserved"}},
		"nobody":                      {[]Caller{{"anonymous", tokenA}}, []string{"reserved"}},
		"one name twice":              {[]Caller{{"a", tokenA}, {"A", tokenB}}, []string{"caller 2: the name A is already taken"}},
		"one token twice":             {[]Caller{{"a", tokenA}, {"b", tokenA}}, []string{"caller b: the token is also that of caller a"}},
		"short token":                 {[]Caller{{"a", tokenA[:15]}}, []string{"caller a: the token is shorter than 16 bytes"}},
		"unset token":                 {[]Caller{{"a", ""}}, []string{"shorter than 16"}},
		"token with its line break":   {[]Caller{{"a", tokenA + "\n"}}, []string{"line break"}},
		"every problem at once": {
			[]Caller{{"", "short"}, {"a", tokenA}, {"a", tokenA}},
			[]string{"caller 1: the name", "caller 1: the token is shorter", "caller 3: the name a", "caller 3: the token is also"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := NewCallers(tc.callers)
			if c != nil || err == nil {
				t.Fatalf("accepted: %v", c)
			}
			problems := err.(interface{ Unwrap() []error }).Unwrap()
			if len(problems) != len(tc.want) {
				t.Fatalf("%d problems, want %d: %v", len(problems), len(tc.want), err)
			}
			for i, want := range tc.want {
				if !strings.Contains(problems[i].Error(), want) {
					t.Errorf("problem %d is %q, want %q in it", i, problems[i], want)
				}
			}
		})
	}
}

func TestNoProblemTellsAToken(t *testing.T) {
	_, err := NewCallers([]Caller{{"a", "SECRET"}, {"b", "SECRET SECRET SECRET"}, {"SECRET/SECRET=SECRET", "b"}})
	if err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("error tells a token: %v", err)
	}
}

func TestATokenIsNeverPrinted(t *testing.T) {
	caller := Caller{"billing", tokenA}
	asJSON, err := json.Marshal(caller)
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "caller", caller)
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "callers", []Caller{caller})
	for form, got := range map[string]string{
		"%v":   fmt.Sprint(caller),
		"%+v":  fmt.Sprintf("%+v", []Caller{caller}),
		"%#v":  fmt.Sprintf("%#v", caller),
		"%s":   caller.String(),
		"JSON": string(asJSON),
		"slog": logged.String(),
	} {
		if strings.Contains(got, tokenA) || !strings.Contains(got, "billing") {
			t.Errorf("%s gives %s", form, got)
		}
	}
}

func TestBearerToken(t *testing.T) {
	for name, tc := range map[string]struct {
		values []string
		token  string
		err    error
	}{
		"as documented":       {[]string{"Bearer abc"}, "abc", nil},
		"scheme in any case":  {[]string{"bEARER abc"}, "abc", nil},
		"more than one space": {[]string{" Bearer   abc "}, "abc", nil},
		"base64 characters":   {[]string{"Bearer a-._~+/9=="}, "a-._~+/9==", nil},
		"no field":            {nil, "", ErrTokenMissing},
		"empty field":         {[]string{""}, "", ErrTokenMalformed},
		"two fields":          {[]string{"Bearer abc", "Bearer abc"}, "", ErrTokenMalformed},
		"two in one field":    {[]string{"Bearer abc, Bearer abc"}, "", ErrTokenMalformed},
		"no token":            {[]string{"Bearer"}, "", ErrTokenMalformed},
		"blank token":         {[]string{"Bearer  "}, "", ErrTokenMalformed},
		"no scheme":           {[]string{"abc"}, "", ErrTokenMalformed},
		"another scheme":      {[]string{"Basic abc"}, "", ErrTokenMalformed},
		"scheme and a tab":    {[]string{"Bearer\tabc"}, "", ErrTokenMalformed},
		"tab in the token":    {[]string{"Bearer a\tbc"}, "", ErrTokenMalformed},
		"control character":   {[]string{"Bearer a\x00"}, "", ErrTokenMalformed},
		"non-ASCII":           {[]string{"Bearer é"}, "", ErrTokenMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := BearerToken(tc.values)
			if token != tc.token || !errors.Is(err, tc.err) {
				t.Errorf("BearerToken(%q) = %q, %v; want %q, %v", tc.values, token, err, tc.token, tc.err)
			}
		})
	}
}

func BenchmarkIdentify(b *testing.B) {
	var callers []Caller
	for i := range 100 {
		callers = append(callers, Caller{fmt.Sprintf("c%d", i), fmt.Sprintf("%s%03d", tokenA, i)})
	}
	c, err := NewCallers(callers)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Identify(tokenA + "050")
	}
}

package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestNoErrorRepeatsAPassword: whatever is wrong, and wherever it stands.
func TestNoErrorRepeatsAPassword(t *testing.T) {
	for _, u := range []string{"https://bob:hunter2%zz@api.example.com", "https://bob:hunter2@", "ftp://bob:hunter2@x", "https://bob:hunter2%40api.example.com", "//bob:hunter2@", "bob:hunter2@api.example.com", "https://bob:{hunter2}@x", "https://bob:hunter2 @x", "https://bob:hunter2/@x/{nope}"} {
		texts := []string{
			fmt.Sprintf("routes: [{name: a, upstream: '%s'}]\n", u),
			fmt.Sprintf("routes: [{name: '%s', upstream: 'http://x'}, {name: b, upstream: 'http://x'}]\n", u+"@"),
			fmt.Sprintf("ledger: {url: '%s'}\n%s", u, small),
			fmt.Sprintf("ledger: {url: 'sqlite://%s'}\n%s", u+"?", small),
			fmt.Sprintf("ledger: {retention: '%s', ca: '%s'}\n%s", u+"@", u+"@", small),
			fmt.Sprintf("listen: '%s'\nforwarded: '%s'\n%s", u+"@", u+"@", small),
			fmt.Sprintf("limits: {header: '%s'}\n'%s': 1\n%s", u+"@", u+"@", small),
			fmt.Sprintf("routes: [{name: a, upstream: 'http://x', key: {header: '%s'}, methods: ['%s'], match: {host: '%s', path: '%s'}}]\n", u+"@", u+"@", u+"@", u+"@"),
			fmt.Sprintf("? '%s'\n: 1\n? '%s'\n: 1\n", u+"@", u+"@"),
		}
		if !strings.HasPrefix(u, "ftp") {
			texts = append(texts, fmt.Sprintf("routes: [{name: a, upstream: 'http://x', reconcile: {lookup: {url: '%s{nope}'}, confirmed: 'true'}}]\n", u))
		}
		for _, text := range texts {
			if _, err := Parse("f", []byte(text), noEnv); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s\n%v", text, err)
			}
		}
		c, err := FromFlags(u)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("--upstream %s: %v", u, err)
		}
		if _, _, err := c.PolicyRoutes(); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the routes of %s: %v", u, err)
		}
	}
}

func TestNoErrorRepeatsASecret(t *testing.T) {
	for _, text := range []string{
		"admin: {token: |hunter2}\n" + small,
		"admin:\n  token: |hunter2\n" + small,
		"admin: {token: 'a${hunter2 secret}'}\n" + small,
		"admin: {token: 'a${hunter2'}\n" + small,
		"admin: {token: [hunter2]}\n" + small,
		"admin: {token: hunter2}\n" + small,
		"callers: [{name: a, token: 'hunter2 hunter2 hunter2'}]\n" + small,
		"callers: [{name: hunter2hunter2hunter2, token: a}]\n" + small, // swapped
		"routes: [{name: a, upstream: 'http://x', reconcile: {lookup: {url: 'x', headers: {Authorization: {hunter2: 1}}}}}]\n",
	} {
		if _, err := Parse("f", []byte(text), noEnv); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

func TestAHarmlessValueIsShown(t *testing.T) {
	for text, want := range map[string]string{
		"routes: [{name: a, upstream: 'api.example.com'}]\n": `"api.example.com" is not a URL`,
		"listen: localhost\n" + small:                        `"localhost" is not an address`,
	} {
		if _, err := Parse("f", []byte(text), noEnv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

package config

import (
	"strings"
	"testing"
)

func TestASQLiteURLIsAFileNameAndNothingElse(t *testing.T) {
	for u, want := range map[string]string{
		"sqlite:///x/a?mode=memory": "? or # is not supported", "sqlite://l.db?timeout=5s": "? or # is not supported", "sqlite://l.db#1": "? or # is not supported",
		"sqlite://:memory:": "in memory", "sqlite://file::memory:?cache=shared": "in memory", "sqlite://file:l.db": "has file: before", "sqlite://": "names no file",
		"sqlite://bob:hunter2@host/l.db": "no user, password or host",
	} {
		c := Default()
		c.Ledger.URL = Secret(u)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "ledger.url: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, u := range []string{"sqlite://l.db", "sqlite:///x/l.db", "sqlite://./a b/l@1.db", "sqlite:///x:y/l@1.db", "sqlite://l@1.db", "redis://h:1/0?prefix=p#", "redis+sentinel://h:1/m/0?timeout=1s"} {
		if err := checkLedgerURL(u); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
}

func TestAPasswordIsFoundWithoutParsingTheURL(t *testing.T) {
	for u, want := range map[string]bool{
		"redis://:secret@h:1/0":                   true,
		"redis://:s3/cret@127.0.0.1:1/0":          true,
		"redis://:s3?cret@127.0.0.1:1/0":          true,
		"redis://:s3#cret@127.0.0.1:1/0":          true,
		"redis://:s3@cret@127.0.0.1:1/0":          true,
		"redis+sentinel://:secret%zz@h:1/m/0":     true,
		"redis+cluster://u:secret@h:1,g:2":        true,
		"redis://:secret${X}@h:1/0":               true, // a part of one is one
		"redis://:${X}secret@h:1/0":               true,
		"redis://:${secret@h:1/0":                 true,
		"redis://:${sec ret}@h:1/0":               true,
		"redis://:secret\n@h:1/0":                 true,
		"mysql://u:secret@h":                      true,
		":secret@h":                               true,
		"sqlite://u:secret@h/l.db":                true,
		"redis://:${PW}@h:1/0":                    false,
		"redis://${USER}:${PW}@h:1/0":             false,
		"redis+sentinel://u:${A}${B}@h:1,g:2/m/0": false,
		"redis://user@h:1/0":                      false,
		"redis://user:@h:1/0":                     false,
		"redis://h:1/0?prefix=p":                  false,
		"${LEDGER_URL}":                           false,
		"sqlite:///x:y/l@1.db":                    false,
		"sqlite://l.db":                           false,
	} {
		if got := HoldsPassword(u); got != want {
			t.Errorf("HoldsPassword(%q) = %v", u, got)
		}
	}
}

package policy

import "testing"

func TestParseLease(t *testing.T) {
	for _, c := range []struct {
		in    string
		run   string
		token uint64
	}{
		{`"run-42";token=7`, "run-42", 7},
		{`run-42;token=7`, "run-42", 7},
		{` "a/b:c" ; token=999999999999999 `, "", 0},
		{`"a/b:c";token=999999999999999`, "a/b:c", 999999999999999},
		{`"run";token=7;extra=1`, "run", 7},
		{`"run"`, "", 0},
		{`"run";token=0`, "", 0},
		{`"run";token=-1`, "", 0},
		{`"run";token="7"`, "", 0},
		{`"run";token=7.5`, "", 0},
		{`"";token=7`, "", 0},
		{`"a b";token=7`, "", 0},
		{`7;token=7`, "", 0},
		{`"a";token=1, "b";token=2`, "", 0},
		{``, "", 0},
	} {
		run, token, err := ParseLease([]string{c.in})
		if (err == nil) != (c.token != 0) || run != c.run || token != c.token {
			t.Errorf("%s: %q %d %v", c.in, run, token, err)
		}
	}
	if _, _, err := ParseLease([]string{`"a";token=1`, `"a";token=2`}); err == nil {
		t.Error("two fields were read as one")
	}
}

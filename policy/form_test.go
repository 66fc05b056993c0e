package policy

import (
	"strings"
	"testing"
)

// sumForm is the digest of a form, or "" for what is none here.
func sumForm(text string, ignore ...string) string {
	sum, ok := formSum(text, newIgnored(ignore))
	if !ok {
		return ""
	}
	return string(sum[:])
}

func TestFormsOfOneMeaning(t *testing.T) {
	for name, texts := range map[string][]string{
		"order of distinct fields":   {"a=1&b=2&c=3", "c=3&a=1&b=2"},
		"order between names":        {"a=1&b=9&a=2", "a=1&a=2&b=9", "b=9&a=1&a=2"},
		"spelling":                   {"a=x+y%2f", "%61=%78%20y%2F"},
		"non-ASCII":                  {"a=%C3%A9", "a=%c3%a9"},
		"order between roots":        {"m[]=1&m[]=2&x=3", "x=3&m[]=1&m[]=2", "m%5b%5D=1&x=3&m[]=2"},
		"order of an object":         {"m[b]=1&m[a]=2&x=3", "x=3&m[a]=2&m[b]=1", "m%5bb%5D=1&x=3&m[a]=2"},
		"order of an object, upper":  {"m[B]=1&M[A]=2&x=3", "x=3&M[A]=2&m[B]=1"},
		"order of objects in one":    {"m[b][c]=1&m[b][d]=2&m[_a]=3", "m[_a]=3&m[b][d]=2&m[b][c]=1"},
		"what needs no encoding":     {`a="<>[]{}|\^~'()*!`, "a=%22%3C%3E%5B%5D%7B%7D%7C%5C%5E%7E%27%28%29%2A%21"},
		"an equals sign in a value":  {"a=b=c", "a=b%3Dc"},
		"hyphens and underscores":    {"a-b=1&a_b=2", "a_b=2&a-b=1"},
		"a root in another's letter": {"ab=1&a=2", "a=2&ab=1"},
	} {
		for _, text := range texts {
			if got := sumForm(text); got == "" || got != sumForm(texts[0]) {
				t.Errorf("%s: %s and %s differ", name, text, texts[0])
			}
		}
	}
}

func TestFormsOfDifferentMeaning(t *testing.T) {
	// No two of all of these are the same.
	texts := []string{
		"", "a", "a=", "=a", "=", "a=1", "a=1&a=1", "a=1&a=2", "a=2&a=1", "a=1&a=2&a=1", "a=12", "A=1", "b=1",
		"a=1&b=2", "a=2&b=1", "a&b=2", "a=&b=2", "a=1%26b=2", "a%3D1=", "a=1&b=2&c", "a=+1", "a=%2B1", "a=1%00", "a=%0d%0a", "a=%0A",
		"a=%C3%A9", "a=%E9", "a=e%CC%81",
		// One name to some servers: their order counts.
		"a=1&A=2", "A=2&a=1",
		"a=1&a[]=2", "a[]=2&a=1", "a[]=1&a[0]=2", "a[0]=2&a[]=1", "m[0]=1&m[1]=2", "m[1]=2&m[0]=1", "m[a]=1&m[a]=2", "m[a]=2&m[a]=1", "m[a]=1&m[A]=2", "m[A]=2&m[a]=1", "m[a]=1&m[a][b]=2", "m[a][b]=2&m[a]=1", "m=1&m[a]=2", "m[a]=2&m=1",
		"m[-1]=1&m[b]=2", "m[b]=2&m[-1]=1", "m[a][0]=1&m[b]=2", "m[b]=2&m[a][0]=1", "m[a]=2&m[b]=1",
		"items[][n]=1&items[][q]=2&items[][n]=3&items[][q]=4", "items[][n]=1&items[][n]=3&items[][q]=2&items[][q]=4",
		"x[a]=1&X[a]=2", "X[a]=2&x[a]=1", "x[]=1&X[]=2", "X[]=2&x[]=1", "m[aa]=1&m[aA][b]=2", "m[aA][b]=2&m[aa]=1", "m[a.b]=1&c=2", "c=2&m[a.b]=1", "m[ax]=1&m[aX]=2", "m[aX]=2&m[ax]=1", "m[a]=1&m[b]=2&m[a]=3", "m[a]=1&m[a]=3&m[b]=2",
		// Names that are not simple keep everything in its place.
		"a.b=1&a_b=2", "a_b=2&a.b=1", "a+b=1&a_b=2", "a_b=2&a+b=1", "a[b=1&c=2", "c=2&a[b=1", "a]=1&c=2", "c=2&a]=1", "a[b]c=1&c=2", "c=2&a[b]c=1",
		"a[[b]]=1&c=2", "c=2&a[[b]]=1", "[a]=1&c=2", "c=2&[a]=1", "=1&c=2", "c=2&=1", "%C3%A9=1&c=2", "c=2&%C3%A9=1", "a.b=1&x=2&y=3", "a.b=1&y=3&x=2",
	}
	seen := make(map[string]string)
	for _, text := range texts {
		sum := sumForm(text)
		if sum == "" {
			t.Errorf("%s is not taken for a form", text)
			continue
		}
		if other, is := seen[sum]; is {
			t.Errorf("%s and %s are one", text, other)
		}
		seen[sum] = text
	}
}

func TestWhatIsNotBeyondDoubtAForm(t *testing.T) {
	for _, text := range []string{
		"a=1;b=2", "a;b", "a=%", "a=%4", "a=%4g", "%zz=1", "a=%u0041", "a=1&&b=2", "&a=1", "a=1&", "&", "a=é", "a=b c", "a=1\n", "a=1\r\nb=2", "a=\x00", "a=\x7f", "a=\xff", "\xef\xbb\xbfa=1", " a=1",
		strings.Repeat("a=1&", maxFields) + "a=1",
	} {
		if sumForm(text, "/ts") != "" {
			t.Errorf("%.40q was taken for a form", text)
		}
	}
	if sumForm(strings.Repeat("a=1&", maxFields-1)+"a=1") == "" {
		t.Error("refused at the bound")
	}
}

func TestWhatIsIgnoredInAForm(t *testing.T) {
	for name, c := range map[string]struct {
		ignore       []string
		same, others []string
	}{
		"a field":           {[]string{"/ts"}, []string{"a=1", "a=1&ts=5", "ts=6&a=1&ts=7", "t%73&a=1"}, []string{"a=1&TS=5", "a=1&ts[]=5", "a=2&ts=5", "ts=5", "a=1&/ts=1"}},
		"the only field":    {[]string{"/ts"}, []string{"", "ts=1", "ts"}, []string{"a"}},
		"not a simple name": {[]string{"/re.q"}, []string{"a=1&b=2", "b=2&a=1", "b=2&re.q=3&a=1"}, []string{"a=1&b=2&re=1"}},
		"a name in full":    {[]string{"/m[ts]"}, []string{"m[a]=1", "m[ts]=1&m[a]=1", "m%5Bts%5D=2&m[a]=1"}, []string{"m[a]=1&m[t]=1", "m[a]=1&m[ts][]=1"}},
		"a pointer in JSON": {[]string{"/m/ts"}, []string{"m=1"}, []string{"m=2", "m=1&ts=1", "", "m=1&m%2Fts=1"}},
		"a slash":           {[]string{"/m~1ts"}, []string{"m=1", "m=1&m/ts=2", "m%2Fts=2&m=1"}, []string{"m=1&ts=1"}},
		"an empty name":     {[]string{"/"}, []string{"m=1", "m=1&=2", "=&m=1"}, []string{"m=1&a"}},
	} {
		want := sumForm(c.same[0], c.ignore...)
		for _, text := range c.same {
			if got := sumForm(text, c.ignore...); got == "" || got != want {
				t.Errorf("%s: %s and %s differ", name, text, c.same[0])
			}
		}
		for _, text := range c.others {
			if got := sumForm(text, c.ignore...); got == "" || got == want {
				t.Errorf("%s: %s and %s are one, or not taken", name, text, c.same[0])
			}
		}
	}
}

package policy

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// sumParts is the digest of a body with the boundary B, or "" for what is none here.
// Line feeds are written as such, to be readable.
func sumParts(body string, ignore ...string) string {
	return sumPartsOf("B", strings.ReplaceAll(body, "\n", "\r\n"), ignore...)
}

func sumPartsOf(boundary, body string, ignore ...string) string {
	sum, ok := multipartSum(strings.NewReader(body), boundary, newIgnored(ignore))
	if !ok {
		return ""
	}
	return string(sum[:])
}

// parts makes a body with the boundary B of parts: the rest of a Content-Disposition,
// and behind "|" the content, and perhaps a second header line in front of it.
func parts(list ...string) string {
	var b strings.Builder
	for _, p := range list {
		params, content, _ := strings.Cut(p, "|")
		header, rest, more := strings.Cut(content, "|")
		if more {
			header, content = "\n"+header, rest
		} else {
			header = ""
		}
		b.WriteString("--B\nContent-Disposition: form-data; " + params + header + "\n\n" + content + "\n")
	}
	return b.String() + "--B--\n"
}

func TestMultipartBodiesOfOneMeaning(t *testing.T) {
	for name, bodies := range map[string][]string{
		"order of fields":       {parts("name=a|1", "name=b|2"), parts("name=b|2", "name=a|1")},
		"order between names":   {parts("name=a|1", "name=b|9", "name=a|2"), parts("name=b|9", "name=a|1", "name=a|2")},
		"order before a file":   {parts("name=a|1", "name=b|2", "name=f; filename=x|3"), parts("name=b|2", "name=a|1", "name=f; filename=x|3")},
		"order behind a file":   {parts("name=f; filename=x|3", "name=a|1", "name=b|2"), parts("name=f; filename=x|3", "name=b|2", "name=a|1")},
		"order of header lines": {"--B\nContent-Type: text/plain\nContent-Disposition: form-data; name=a\n\n1\n--B--", "--B\nContent-Disposition: form-data; name=a\nContent-Type: text/plain\n\n1\n--B--"},
		"case of header names":  {"--B\nContent-Disposition: form-data; name=a\n\n1\n--B--", "--B\ncontent-disposition:form-data; name=a \n\n1\n--B--\n"},
	} {
		for _, body := range bodies {
			if got := sumParts(body); got == "" || got != sumParts(bodies[0]) {
				t.Errorf("%s: these differ:\n%s\n%s", name, body, bodies[0])
			}
		}
	}
	body := parts("name=a|1", `name="f"; filename="é.txt"|Content-Type: text/plain|two`)
	want := sumParts(body)
	for _, boundary := range []string{"C", "----WebKitFormBoundary7MA4YWxkTrZu0gW", "B'()+_,-./:=?B", strings.Repeat("x", 70), "------------------------d74496d66958873e"} {
		if got := sumPartsOf(boundary, strings.NewReplacer("\n", "\r\n", "--B", "--"+boundary).Replace(body)); got == "" || got != want {
			t.Errorf("with the boundary %s it is another body", boundary)
		}
	}
}

func TestMultipartBodiesOfDifferentMeaning(t *testing.T) {
	bodies := []string{
		parts("name=a|1"), parts("name=b|1"), parts("name=a|2"), parts("name=a|"), parts("name=a|1 "), parts("name=a| 1"), parts("name=a|\n1"), parts("name=a|1\n"), parts("name=A|1"), parts(`name="a"|1`), parts(`name=""|1`),
		parts("name=a; filename=x|1"), parts("name=a; filename=y|1"), parts(`name=a; filename=""|1`), parts("name=a; filename=x|Content-Type: text/plain|1"), parts("name=a; filename=x|Content-Type: text/html|1"),
		parts("name=a|Content-Type: text/plain|1"), parts("name=a|Content-Type: text/plain; charset=latin1|1"), parts("name=a|Content-Transfer-Encoding: binary|1"), parts("name=a|X-Other: 1|1"), parts("name=a|X-Other: 2|1"), parts("name=a|X-Other:|1"),
		parts("name=a|1", "name=b|2"), parts("name=a|2", "name=b|1"), parts("name=a|1", "name=a|2"), parts("name=a|2", "name=a|1"), parts("name=a|1", "name=a|1"), parts("name=a|12"), parts("name=a|1\n-B\n2"), parts("name=a|1\r2"), parts("name=a|1--b2"),
		parts("name=a|1", "name=A|2"), parts("name=A|2", "name=a|1"), parts(`name="a[]"|1`, `name="a[x]"|2`), parts(`name="a[x]"|2`, `name="a[]"|1`), parts("name=a.b|1", "name=c|2"), parts("name=c|2", "name=a.b|1"), parts("name=%61|1", "name=c|2"), parts("name=c|2", "name=%61|1"),
		// A file keeps its place, among fields and among files.
		parts("name=k|1", "name=f; filename=x|2", "name=acl|3"), parts("name=k|1", "name=acl|3", "name=f; filename=x|2"), parts("name=f; filename=x|2", "name=k|1", "name=acl|3"),
		parts("name=f; filename=x|2", "name=g; filename=y|3"), parts("name=g; filename=y|3", "name=f; filename=x|2"),
		// A field that looks like the end of one and the beginning of the next.
		parts("name=a|1\nContent-Disposition: form-data; name=b\n\n2"),
	}
	seen := make(map[string]string)
	for _, body := range bodies {
		sum := sumParts(body)
		if sum == "" {
			t.Errorf("this is not taken for multipart:\n%s", body)
			continue
		}
		if other, is := seen[sum]; is {
			t.Errorf("these are one:\n%s\n%s", body, other)
		}
		seen[sum] = body
	}
}

func TestWhatIsNotBeyondDoubtMultipart(t *testing.T) {
	part := "--B\nContent-Disposition: form-data; name=a\n\n1\n"
	for name, body := range map[string]string{
		"nothing":                           "",
		"no part":                           "--B--\n",
		"no part, an empty line":            "--B\n\n--B--\n",
		"text before it":                    "text\n" + part + "--B--\n",
		"an empty line before it":           "\n" + part + "--B--\n",
		"text behind it":                    part + "--B--\ntext",
		"two line ends behind it":           part + "--B--\n\n",
		"a space behind it":                 part + "--B-- ",
		"a hyphen behind it":                part + "--B---",
		"another body behind it":            part + "--B--\n" + part + "--B--\n",
		"another boundary first":            strings.Replace(part, "--B", "--C", 1) + "--B--",
		"no line end behind the boundary":   strings.Replace(part, "--B\n", "--Bxx", 1) + "--B--",
		"no line end behind a later one":    part + strings.Replace(part, "--B\n", "--Bxx", 1) + "--B--",
		"no last boundary":                  part,
		"the last boundary is cut short":    part + "--B-",
		"nothing behind the boundary":       part + "--B",
		"it ends in a header":               part + "--B\nContent-Disposition: form-data; name=b",
		"it ends behind a header":           part + "--B\nContent-Disposition: form-data; name=b\n\n",
		"a part without a line end":         "--B\nContent-Disposition: form-data; name=a\n\n--B--\n",
		"a space behind the boundary":       "--B \nContent-Disposition: form-data; name=a\n\n1\n--B--\n",
		"a space behind a later boundary":   part + strings.Replace(part, "--B", "--B ", 1) + "--B--\n",
		"the boundary within the content":   parts("name=a|x --B y"),
		"the boundary at the content's end": parts("name=a|x--B"),
		"a longer boundary":                 parts("name=a|1\n--Bx"),
		"a boundary behind a bare line":     parts("name=a|1\r--B\n2"),
		"the boundary in a header":          parts("name=a|X: --B|1"),
		"no header":                         "--B\n\n1\n--B--\n",
		"no disposition":                    "--B\nContent-Type: text/plain\n\n1\n--B--\n",
		"two dispositions":                  "--B\nContent-Disposition: form-data; name=a\ncontent-disposition: form-data; name=b\n\n1\n--B--\n",
		"a field twice":                     parts("name=a|X: 1\nx: 1|1"),
		"a folded line":                     parts("name=a|X: 1\n 2|1"),
		"a line that is none":               parts("name=a|X|1"),
		"a space before the colon":          parts("name=a|X : 1|1"),
		"no name of a field":                parts("name=a|: 1|1"),
		"a control character":               parts("name=a|X: \x01|1"),
		"DEL":                               parts("name=a|X: \x7f|1"),
		"NUL in a name":                     parts("name=\"a\x00b\"|1"),
		"invalid UTF-8":                     parts("name=a; filename=\"\xe9\"|1"),
		"an attachment":                     "--B\nContent-Disposition: attachment; name=a\n\n1\n--B--\n",
		"no name":                           parts("filename=a|1"),
		"two names":                         parts("name=a; name=a|1"),
		"two names of other case":           parts("name=a; NAME=b|1"),
		"a name in pieces":                  parts("name*0=a; name*1=b|1"),
		"a name with a character set":       parts("name*=utf-8''a|1"),
		"an extended file name":             parts("name=a; filename=x; filename*=utf-8''y|1"),
		"a backslash in a name":             parts(`name="a\"b"|1`),
		"a backslash in a file name":        parts(`name=a; filename="C:\x"|1`),
		"an unclosed quote":                 parts(`name="a|1`),
		"text behind a quote":               parts(`name="a"b|1`),
		"an empty parameter":                parts("name=a;|1"),
		"a parameter without a value":       parts("name=a; filename|1"),
		"a name with a space":               parts("name=a b|1"),
		"base64":                            parts("name=a|Content-Transfer-Encoding: base64|MQ=="),
		"quoted-printable":                  parts("name=a|Content-Transfer-Encoding: quoted-printable|=31"),
		"parts within a part":               parts("name=a|Content-Type: Multipart/mixed; boundary=C|1"),
		"a long header":                     parts("name=a|X: " + strings.Repeat("x", maxPartHeader) + "|1"),
		"many parts":                        strings.Repeat(part, maxFields+1) + "--B--",
	} {
		if sumParts(body, "/a") != "" {
			t.Errorf("%s: this was taken for multipart:\n%.300q", name, body)
		}
	}
	if sumParts(strings.Repeat(part, maxFields)+"--B--") == "" {
		t.Error("refused at the bound")
	}
	good := strings.ReplaceAll(parts("name=a|1"), "\n", "\r\n")
	for i := range len(good) {
		if c := good[i]; c == '\r' && i < len(good)-2 {
			if sumPartsOf("B", good[:i]+good[i+1:]) != "" {
				t.Errorf("taken without the CR at %d", i)
			}
		}
	}
	for _, b := range []string{"", strings.Repeat("x", 71), "a b", "a\"", "é", "a;b", "a\n", "a*"} {
		if sumPartsOf(b, strings.NewReplacer("\n", "\r\n", "--B", "--"+b).Replace(parts("name=a|1"))) != "" {
			t.Errorf("the boundary %q was taken", b)
		}
	}
}

// TestPartsAreCutWhereverTheBufferEnds: the boundary may fall on any border of it.
func TestPartsAreCutWhereverTheBufferEnds(t *testing.T) {
	for pad := 32<<10 - 200; pad < 32<<10+100; pad++ {
		content := strings.Repeat("\r\n-", pad/3) + strings.Repeat("x", pad%3)
		head := "--B\r\nContent-Disposition: form-data; name=a; filename=x\r\n\r\n"
		body := head + content + "\r\n--B--\r\n"
		sum, ok := multipartSum(strings.NewReader(body), "B", nil)
		if !ok {
			t.Fatalf("refused with %d bytes", pad)
		}
		slow, ok := multipartSum(iotest.DataErrReader(iotest.HalfReader(strings.NewReader(body))), "B", nil)
		if !ok || slow != sum {
			t.Fatalf("with %d bytes read in pieces: %v", pad, ok)
		}
		other, ok := multipartSum(strings.NewReader(strings.Replace(body, content, content[:pad-1]+"y", 1)), "B", nil)
		if !ok || other == sum {
			t.Fatalf("with %d bytes the last one does not count", pad)
		}
	}
}

func TestWhatIsIgnoredInMultipart(t *testing.T) {
	same := []string{parts("name=a|1"), parts("name=a|1", `name="ts"|5`), parts("name=ts; filename=x|Content-Type: text/plain|6", "name=a|1", "name=ts|7"), parts("name=a|1", `name="x.y"|1`)}
	for _, body := range same {
		if got := sumParts(body, "/ts", "/x.y", "/a/b"); got == "" || got != sumParts(same[0]) {
			t.Errorf("this differs:\n%s", body)
		}
	}
	for _, body := range []string{parts("name=a|1", "name=TS|5"), parts("name=a|2", "name=ts|5"), parts("name=ts|1"), parts("name=ts|1", "name=ts|Content-Transfer-Encoding: base64|1"), parts("name=a|1", "name=b|2")} {
		if sumParts(body, "/ts") == sumParts(same[0]) {
			t.Errorf("this is the same:\n%s", body)
		}
	}
}

func TestAPartsContentIsNotHeld(t *testing.T) {
	head := "--B\r\nContent-Disposition: form-data; name=a; filename=x\r\n\r\n"
	zeros := make([]byte, 1<<20)
	readers := []io.Reader{strings.NewReader(head)}
	for range 16 {
		readers = append(readers, bytes.NewReader(zeros))
	}
	readers = append(readers, strings.NewReader("\r\n--B--"))
	before := allocated()
	if _, ok := multipartSum(io.MultiReader(readers...), "B", nil); !ok {
		t.Fatal("refused")
	}
	if n := allocated() - before; n > 1<<20 {
		t.Errorf("16 MiB cost %d bytes", n)
	}
}

// allocated is how many bytes this process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

package policy

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"
)

// refPart is a part as mime/multipart reads it.
type refPart struct {
	name, file, content string
	isFile              bool
	header              string
}

// refParts reads a body with mime/multipart.
func refParts(t *testing.T, boundary, body string) []refPart {
	t.Helper()
	r := multipart.NewReader(strings.NewReader(body), boundary)
	var list []refPart
	for {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatalf("mime/multipart cannot read what was taken: %v\n%q", err, body)
		}
		content, err := io.ReadAll(p)
		if err != nil {
			t.Fatalf("mime/multipart cannot read what was taken: %v\n%q", err, body)
		}
		if p.FormName() == "" && !strings.Contains(p.Header.Get("Content-Disposition"), `name=""`) {
			t.Fatalf("mime/multipart finds no name in %v", p.Header)
		}
		_, isFile := p.Header["Content-Disposition"]
		isFile = isFile && strings.Contains(strings.ToLower(p.Header.Get("Content-Disposition")), "filename=")
		list = append(list, refPart{p.FormName(), p.FileName(), string(content), isFile, fmt.Sprint(p.Header)})
	}
}

// FuzzMultipartIsStrict: what multipartSum takes, mime/multipart reads to its end and
// in the same way; two bodies have one digest only if it finds the same parts in them.
func FuzzMultipartIsStrict(f *testing.F) {
	for _, body := range []string{
		parts("name=a|1"), parts("name=a|1", "name=b|2"), parts("name=b|2", "name=a|1"), parts(`name="f"; filename="x"|Content-Type: text/plain|1`, "name=a|"), parts("name=a|1") + "x", "x" + parts("name=a|1"),
		parts("name=a|--B"), parts("name=a|X: 1\n 2|1"), "--B--", parts(`name="a\"b"|1`), parts("name=a|\n-\n--\n--C"), parts("name=a|Content-Transfer-Encoding: base64|MQ=="),
	} {
		body = strings.ReplaceAll(body, "\n", "\r\n")
		f.Add("B", body, body)
		f.Add("B", body, strings.ReplaceAll(parts("name=a|1"), "\n", "\r\n"))
	}
	f.Fuzz(func(t *testing.T, boundary, a, b string) {
		sumA, sumB := sumPartsOf(boundary, a), sumPartsOf(boundary, b)
		if sumA == "" {
			return
		}
		pa := refParts(t, boundary, a)
		if sumA != sumB {
			return
		}
		pb := refParts(t, boundary, b)
		if len(pa) != len(pb) {
			t.Fatalf("one digest, but %d and %d parts\n%q\n%q", len(pa), len(pb), a, b)
		}
		count := make(map[string]int)
		for i := range pa {
			count[fmt.Sprintf("%+v", pa[i])]++
			count[fmt.Sprintf("%+v", pb[i])]--
		}
		for part, n := range count {
			if n != 0 {
				t.Fatalf("one digest, but not the same parts: %s\n%q\n%q", part, a, b)
			}
		}
	})
}

// FuzzMultipartBoundaryIsFree: the same parts written with two boundaries are one
// body, and not the one with any of them changed.
func FuzzMultipartBoundaryIsFree(f *testing.F) {
	f.Add("a", "1", "f", "x.txt", "text/plain", "content", "B", "C", "z")
	f.Add("a[]", "", "a[b]", "", "", "\r\n--B--\r\n", "----x", "----x-", "\r\n")
	f.Fuzz(func(t *testing.T, name1, value1, name2, file2, type2, content2, b1, b2, more string) {
		write := func(boundary, value1, content2, type2 string) (string, bool) {
			var body bytes.Buffer
			w := multipart.NewWriter(&body)
			if w.SetBoundary(boundary) != nil {
				return "", false
			}
			w.WriteField(name1, value1)
			h := textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition(name2, file2)}}
			if type2 != "" {
				h["Content-Type"] = []string{type2}
			}
			p, err := w.CreatePart(h)
			if err != nil {
				return "", false
			}
			io.WriteString(p, content2)
			w.Close()
			sum := sumPartsOf(boundary, body.String())
			return sum, sum != ""
		}
		one, ok1 := write(b1, value1, content2, type2)
		two, ok2 := write(b2, value1, content2, type2)
		if !ok1 || !ok2 {
			return
		}
		if one != two {
			t.Fatal("another boundary is another body")
		}
		if more == "" {
			return
		}
		for what, change := range map[string][3]string{"value": {value1 + more, content2, type2}, "content": {value1, content2 + more, type2}, "content, in front": {value1, more + content2, type2}, "moved": {value1 + more, content2, type2 + "x"}} {
			if other, ok := write(b2, change[0], change[1], change[2]); ok && other == one && (change[0] != value1 || change[1] != content2 || strings.Trim(change[2], " \t") != strings.Trim(type2, " \t")) {
				t.Fatalf("another %s is the same body", what)
			}
		}
	})
}

// FuzzAnyRequestHasAFingerprint: whatever comes, nothing panics, nothing is an error,
// the scheme is a known one and always the same, and SumAs agrees with Sum.
func FuzzAnyRequestHasAFingerprint(f *testing.F) {
	multi := strings.ReplaceAll(parts("name=a|1"), "\n", "\r\n")
	f.Add(uint8(BodyAuto), typeJSON, "", `{"a":1}`, "/a")
	f.Add(uint8(BodyAuto), typeForm, "gzip", "a=1", "/a")
	f.Add(uint8(BodyAuto), typeMultipart+"; boundary=B", "", multi, "/b/0")
	f.Add(uint8(BodyJSON), typeJSON+"; charset=\"utf-8\"", "deflate", "", "/")
	f.Add(uint8(BodyJSON), "", "gzip", coded(f, "gzip", `[1,{"b":[0]}]`), "/1/b/0")
	f.Add(uint8(BodyForm), typeForm, "deflate", coded(f, "deflate", "a=1&b=2"), "/a")
	f.Add(uint8(BodyMultipart), typeMultipart+`; boundary="B"`, "x-gzip", coded(f, "gzip", multi), "/a")
	f.Fuzz(func(t *testing.T, form uint8, ctype, encoding, body, ignore string) {
		p := posted{form: BodyKind(form % 5), ctype: ctype, encoding: encoding, body: body, parse: 1 << 16}
		if CheckIgnore(p.form, ignore) == nil {
			p.ignore = []string{ignore}
		}
		first, again := p.sum(t), p.sum(t)
		scheme := SchemeOf(first)
		if first != again || schemeNamed(scheme) == nil || p.as(t, scheme) != first {
			t.Fatalf("%s, then %s, then %s", first, again, p.as(t, scheme))
		}
		if scheme == "raw1" || p.form == BodyRaw && scheme != "raw2" {
			t.Fatalf("%v gives %s", p.form, scheme)
		}
		for _, s := range schemes {
			p.as(t, s.name)
		}
		// A byte more is another body, or the same in a parsed form only.
		more := p
		more.body += " "
		if more.as(t, "raw2") == p.as(t, "raw2") {
			t.Fatal("a byte more is the same body")
		}
	})
}

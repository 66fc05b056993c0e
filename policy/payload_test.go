package policy

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// posted is a request that a route of a form gets.
type posted struct {
	form     BodyKind
	ignore   []string
	headers  []string
	ctype    string // "-" is none; a "|" cuts it in two fields
	encoding string
	body     string
	parse    int64
}

func (p posted) parts(t testing.TB) (*Route, Request) {
	t.Helper()
	route := table(t, Route{Fingerprint: FingerprintRule{Body: p.form, Ignore: p.ignore, Headers: p.headers}, Limits: Limits{Parse: p.parse}}).Routes()[0]
	req := charge().Request
	if p.ctype != "-" {
		req.Header["Content-Type"] = strings.Split(p.ctype, "|")
	}
	if p.encoding != "" {
		req.Header["Content-Encoding"] = []string{p.encoding}
	}
	return route, req
}

func (p posted) sum(t testing.TB) string {
	t.Helper()
	route, req := p.parts(t)
	fp, err := NewFingerprinter(nil).Sum(route, req, bodyOf(p.body))
	if err != nil {
		t.Fatal(err)
	}
	return fp
}

// as is sum by another scheme; "" where that cannot be.
func (p posted) as(t testing.TB, scheme string) string {
	t.Helper()
	route, req := p.parts(t)
	fp, ok, err := NewFingerprinter(nil).SumAs(scheme, route, req, bodyOf(p.body))
	if err != nil || ok == (fp == "") {
		t.Fatal(fp, ok, err)
	}
	return fp
}

const typeJSON = "application/json"

func TestTheSchemeOfANewRequest(t *testing.T) {
	multi := strings.ReplaceAll(parts("name=a|1"), "\n", "\r\n")
	for name, c := range map[string]struct {
		posted
		want string
	}{
		"raw, JSON":                    {posted{form: BodyRaw, ctype: typeJSON, body: "{}"}, "raw2"},
		"json":                         {posted{form: BodyJSON, ctype: typeJSON, body: "{}"}, "json1"},
		"json, no type":                {posted{form: BodyJSON, ctype: "-", body: "{}"}, "json1"},
		"json, another type":           {posted{form: BodyJSON, ctype: typeForm, body: "{}"}, "json1"},
		"json, broken":                 {posted{form: BodyJSON, ctype: typeJSON, body: "{"}, "raw2"},
		"json, empty":                  {posted{form: BodyJSON, ctype: typeJSON}, "raw2"},
		"form":                         {posted{form: BodyForm, ctype: typeForm, body: "a=1"}, "form1"},
		"form, charset":                {posted{form: BodyForm, ctype: "Application/X-WWW-Form-Urlencoded ; Charset=\"UTF-8\"", body: "a=1"}, "form1"},
		"form, other charset":          {posted{form: BodyForm, ctype: typeForm + "; charset=latin1", body: "a=1"}, "raw2"},
		"form, no type":                {posted{form: BodyForm, ctype: "-", body: "a=1"}, "form1"},
		"form, empty":                  {posted{form: BodyForm, ctype: "-"}, "form1"},
		"form, another type":           {posted{form: BodyForm, ctype: typeJSON, body: "a=1"}, "raw2"},
		"form, two types":              {posted{form: BodyForm, ctype: typeForm + "|" + typeForm, body: "a=1"}, "raw2"},
		"form, an empty type":          {posted{form: BodyForm, ctype: "", body: "a=1"}, "raw2"},
		"form, broken":                 {posted{form: BodyForm, ctype: typeForm, body: "a=%"}, "raw2"},
		"multipart":                    {posted{form: BodyMultipart, ctype: typeMultipart + "; boundary=B", body: multi}, "multipart1"},
		"multipart, quoted":            {posted{form: BodyMultipart, ctype: typeMultipart + `; charset=utf-8; boundary="B"`, body: multi}, "multipart1"},
		"multipart, no type":           {posted{form: BodyMultipart, ctype: "-", body: multi}, "raw2"},
		"multipart, no boundary":       {posted{form: BodyMultipart, ctype: typeMultipart, body: multi}, "raw2"},
		"multipart, two boundaries":    {posted{form: BodyMultipart, ctype: typeMultipart + "; boundary=B; boundary=B", body: multi}, "raw2"},
		"multipart, a like name":       {posted{form: BodyMultipart, ctype: typeMultipart + "; x-boundary=A; boundary=B", body: multi}, "raw2"},
		"multipart, in another value":  {posted{form: BodyMultipart, ctype: typeMultipart + `; x="boundary=A"; boundary=B`, body: multi}, "raw2"},
		"multipart, other boundary":    {posted{form: BodyMultipart, ctype: typeMultipart + "; boundary=C", body: multi}, "raw2"},
		"multipart, mixed":             {posted{form: BodyMultipart, ctype: "multipart/mixed; boundary=B", body: multi}, "raw2"},
		"multipart, other charset":     {posted{form: BodyMultipart, ctype: typeMultipart + "; boundary=B; charset=latin1", body: multi}, "raw2"},
		"multipart, broken":            {posted{form: BodyMultipart, ctype: typeMultipart + "; boundary=B", body: multi[1:]}, "raw2"},
		"multipart, empty":             {posted{form: BodyMultipart, ctype: typeMultipart + "; boundary=B"}, "raw2"},
		"auto, JSON":                   {posted{form: BodyAuto, ctype: typeJSON, body: "{}"}, "json1"},
		"auto, JSON, charset":          {posted{form: BodyAuto, ctype: "APPLICATION/JSON;charset=utf-8", body: "{}"}, "json1"},
		"auto, JSON, a parameter":      {posted{form: BodyAuto, ctype: typeJSON + `; profile="http://x; y"`, body: "{}"}, "json1"},
		"auto, a kind of JSON":         {posted{form: BodyAuto, ctype: "application/vnd.api+json", body: "{}"}, "json1"},
		"auto, JSON, other charset":    {posted{form: BodyAuto, ctype: typeJSON + "; charset=utf-16", body: "{}"}, "raw2"},
		"auto, lines of JSON":          {posted{form: BodyAuto, ctype: "application/x-ndjson", body: "{}"}, "raw2"},
		"auto, a sequence":             {posted{form: BodyAuto, ctype: "application/geo+json-seq", body: "{}"}, "raw2"},
		"auto, nearly JSON":            {posted{form: BodyAuto, ctype: "application/json5", body: "{}"}, "raw2"},
		"auto, text":                   {posted{form: BodyAuto, ctype: "text/plain", body: "{}"}, "raw2"},
		"auto, no type":                {posted{form: BodyAuto, ctype: "-", body: "{}"}, "raw2"},
		"auto, an empty type":          {posted{form: BodyAuto, ctype: "", body: "{}"}, "raw2"},
		"auto, two types":              {posted{form: BodyAuto, ctype: typeJSON + "|" + typeJSON, body: "{}"}, "raw2"},
		"auto, a list of types":        {posted{form: BodyAuto, ctype: typeJSON + ", " + typeJSON, body: "{}"}, "raw2"},
		"auto, a type that is none":    {posted{form: BodyAuto, ctype: "json", body: "{}"}, "raw2"},
		"auto, an empty parameter":     {posted{form: BodyAuto, ctype: typeJSON + ";", body: "{}"}, "raw2"},
		"auto, a broken parameter":     {posted{form: BodyAuto, ctype: typeJSON + "; charset", body: "{}"}, "raw2"},
		"auto, an unclosed quote":      {posted{form: BodyAuto, ctype: typeJSON + `; charset="utf-8`, body: "{}"}, "raw2"},
		"auto, two charsets":           {posted{form: BodyAuto, ctype: typeJSON + "; charset=utf-8; charset=utf-8", body: "{}"}, "raw2"},
		"auto, a control character":    {posted{form: BodyAuto, ctype: typeJSON + "; a=\"\x01\"", body: "{}"}, "raw2"},
		"auto, DEL":                    {posted{form: BodyAuto, ctype: typeJSON + "; a=\"\x7f\"", body: "{}"}, "raw2"},
		"auto, JSON, broken":           {posted{form: BodyAuto, ctype: typeJSON, body: "{'a':1}"}, "raw2"},
		"auto, a form":                 {posted{form: BodyAuto, ctype: typeForm, body: "a=1"}, "form1"},
		"auto, JSON called a form":     {posted{form: BodyAuto, ctype: typeForm, body: `{"a": 1}`}, "raw2"},
		"auto, a form called JSON":     {posted{form: BodyAuto, ctype: typeJSON, body: "a=1"}, "raw2"},
		"auto, parts":                  {posted{form: BodyAuto, ctype: typeMultipart + "; boundary=B", body: multi}, "multipart1"},
		"auto, parts that are related": {posted{form: BodyAuto, ctype: "multipart/related; boundary=B", body: multi}, "raw2"},
	} {
		got := c.sum(t)
		if SchemeOf(got) != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if again := c.as(t, c.want); again != got {
			t.Errorf("%s: SumAs gives %s, and Sum %s", name, again, got)
		}
	}
}

func TestATypeThatDoesNotReachTheUpstreamIsNone(t *testing.T) {
	p := posted{form: BodyAuto, ctype: typeJSON, body: "{}"}
	route, req := p.parts(t)
	req.Header["Connection"] = []string{"close, content-type"}
	if fp, err := NewFingerprinter(nil).Sum(route, req, bodyOf(p.body)); SchemeOf(fp) != "raw2" || err != nil {
		t.Error(fp, err)
	}
}

func TestAParsedBodyCountsAndSoDoesTheRest(t *testing.T) {
	base := posted{form: BodyAuto, ctype: typeJSON, body: `{"a":1,"b":2}`}
	route, req := base.parts(t)
	f := NewFingerprinter(nil)
	first, _ := f.Sum(route, req, bodyOf(base.body))
	if again, _ := f.Sum(route, req, bodyOf(` {"b": 2.0, "a": 1}`)); again != first {
		t.Error("the order of members counts")
	}
	for name, change := range map[string]func(*Request){
		"method":  func(r *Request) { r.Method = "PUT" },
		"scheme":  func(r *Request) { r.Target.Scheme = "http" },
		"host":    func(r *Request) { r.Target.Host = "h" },
		"path":    func(r *Request) { r.Target.Path = "/" },
		"query":   func(r *Request) { r.Target.Query = "" },
		"trailer": func(r *Request) { r.Trailer = map[string][]string{"A": {""}} },
	} {
		_, other := base.parts(t)
		change(&other)
		if fp, _ := f.Sum(route, other, bodyOf(base.body)); fp == first || SchemeOf(fp) != "json1" {
			t.Errorf("another %s: %s", name, fp)
		}
	}
	bound := base
	bound.headers = []string{"Content-Type"}
	utf := bound
	utf.ctype += "; charset=utf-8"
	if bound.sum(t) == utf.sum(t) || bound.sum(t) == first {
		t.Error("a chosen field does not count")
	}
	keyed, _ := NewFingerprinter([]byte("0123456789abcdef")).Sum(route, req, bodyOf(base.body))
	other, _ := NewFingerprinter([]byte("0123456789abcdeF")).Sum(route, req, bodyOf(base.body))
	if SchemeOf(keyed) != "json1-hmac" || keyed == other || strings.Contains(keyed, first[6:]) {
		t.Error(keyed, other)
	}
}

func TestOneTextIsNotTheSameInTwoForms(t *testing.T) {
	// 1 is JSON and a form, and its digest must not be taken for the other's.
	a := posted{form: BodyJSON, ctype: "-", body: "1"}
	if j, f, r := a.sum(t), a.as(t, "form1"), a.as(t, "raw2"); j[6:] == f[6:] || j[6:] == r[5:] {
		t.Error(j, f, r)
	}
}

// coded gives s under a content coding.
func coded(t testing.TB, coding, s string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "bare":
		w, _ = flate.NewWriter(&b, flate.DefaultCompression)
	}
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCodingsAreUndoneWhereTheBodyIsParsed(t *testing.T) {
	text := `{"a":[1,2,3]}`
	z, d := coded(t, "gzip", text), coded(t, "deflate", text)
	plain := posted{form: BodyJSON, body: text}.sum(t)
	for name, c := range map[string]struct{ encoding, body string }{
		"gzip":               {"gzip", z},
		"GZip":               {" GZip ", z},
		"x-gzip":             {"x-gzip", z},
		"gzip and identity":  {"identity, gzip, ", z},
		"deflate":            {"deflate", d},
		"identity":           {"identity", text},
		"an empty field":     {" ", text},
		"gzip, other effort": {"gzip", stored(t, text)},
	} {
		if got := (posted{form: BodyJSON, encoding: c.encoding, body: c.body}).sum(t); got != plain {
			t.Errorf("%s: %s, want %s", name, got, plain)
		}
	}
	for name, c := range map[string]struct{ encoding, body string }{
		"not coded at all":         {"gzip", text},
		"nothing":                  {"gzip", ""},
		"cut short":                {"gzip", z[:len(z)-1]},
		"only a header":            {"gzip", z[:10]},
		"a broken check sum":       {"gzip", z[:len(z)-8] + "\x00" + z[len(z)-7:]},
		"a byte behind it":         {"gzip", z + "\x00"},
		"a second member":          {"gzip", z + coded(t, "gzip", " ")},
		"an empty second member":   {"gzip", z + coded(t, "gzip", "")},
		"deflate cut short":        {"deflate", d[:len(d)-1]},
		"a byte behind deflate":    {"deflate", d + "\n"},
		"deflate without a frame":  {"deflate", coded(t, "bare", text)},
		"gzip called deflate":      {"deflate", z},
		"gzip in gzip":             {"gzip, gzip", coded(t, "gzip", z)},
		"deflate in gzip":          {"deflate, gzip", coded(t, "gzip", d)},
		"gzip, said twice":         {"gzip, gzip", z},
		"br in gzip":               {"gzip, br", z},
		"gzip in br":               {"br, gzip", z},
		"br":                       {"br", text},
		"zstd":                     {"zstd", text},
		"chunked":                  {"chunked", text},
		"a coding with parameters": {"gzip;q=1", z},
	} {
		p := posted{form: BodyJSON, encoding: c.encoding, body: c.body}
		if got := p.sum(t); SchemeOf(got) != "raw2" || p.as(t, "json1") != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
	raw := posted{form: BodyRaw, encoding: "gzip", body: z}
	if raw.sum(t) == (posted{form: BodyRaw, body: text}).sum(t) || raw.sum(t) == (posted{form: BodyRaw, body: z}).sum(t) {
		t.Error("the raw form does not count the coding")
	}
	if raw.sum(t) != (posted{form: BodyRaw, encoding: "X-GZIP", body: z}).sum(t) {
		t.Error("x-gzip is not gzip")
	}
	form := coded(t, "gzip", "a=1&b=2")
	if (posted{form: BodyForm, ctype: "-", encoding: "gzip", body: form}).sum(t) != (posted{form: BodyForm, ctype: "-", body: "b=2&a=1"}).sum(t) {
		t.Error("a form's coding is not undone")
	}
	multi := strings.ReplaceAll(parts("name=a|1"), "\n", "\r\n")
	p := posted{form: BodyMultipart, ctype: typeMultipart + "; boundary=B", body: multi}
	q := p
	q.encoding, q.body = "gzip", coded(t, "gzip", multi)
	if p.sum(t) != q.sum(t) || SchemeOf(p.sum(t)) != "multipart1" {
		t.Error("the coding of parts is not undone")
	}
	q.body += "x"
	if SchemeOf(q.sum(t)) != "raw2" {
		t.Error("a byte behind the coded parts does not count")
	}
}

// stored gives s in gzip, but not compressed.
func stored(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOnlySoMuchIsParsed(t *testing.T) {
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	for _, c := range []struct {
		encoding string
		size     int
		want     string
	}{{"", 1000, "json1"}, {"", 1001, "raw2"}, {"gzip", 1000, "json1"}, {"gzip", 1001, "raw2"}, {"deflate", 1000, "json1"}, {"deflate", 1001, "raw2"}} {
		p := posted{form: BodyJSON, encoding: c.encoding, body: text(c.size), parse: 1000}
		if c.encoding != "" {
			p.body = coded(t, c.encoding, p.body)
		}
		if got := SchemeOf(p.sum(t)); got != c.want {
			t.Errorf("%d bytes %s: %s, want %s", c.size, c.encoding, got, c.want)
		}
	}
	// What is short when it is not coded may be long when it is.
	p := posted{form: BodyJSON, encoding: "gzip", body: stored(t, text(1000)), parse: 1000}
	if len(p.body) <= 1000 || SchemeOf(p.sum(t)) != "json1" {
		t.Error(len(p.body), p.sum(t))
	}
	// Parts are not held, so the limit of the route's requests is theirs.
	part := strings.ReplaceAll(parts("name=a; filename=x|"+strings.Repeat("x", 5000)), "\n", "\r\n")
	for limit, want := range map[int64]string{int64(len(part)): "multipart1", int64(len(part)) - 1: "raw2"} {
		route := table(t, Route{Fingerprint: FingerprintRule{Body: BodyMultipart}, Limits: Limits{Parse: 1, Request: limit}}).Routes()[0]
		req := Request{Header: map[string][]string{"Content-Type": {typeMultipart + "; boundary=B"}, "Content-Encoding": {"gzip"}}}
		if fp, err := NewFingerprinter(nil).Sum(route, req, bodyOf(coded(t, "gzip", part))); SchemeOf(fp) != want || err != nil {
			t.Errorf("limit %d: %s %v, want %s", limit, fp, err, want)
		}
	}
}

func TestABombIsNotUnpacked(t *testing.T) {
	// 1 GiB of zeros would be 1 MiB of gzip; 64 MiB show it as well.
	bomb := coded(t, "gzip", strings.Repeat("\x00", 64<<20))
	for _, form := range []BodyKind{BodyJSON, BodyForm, BodyMultipart} {
		p := posted{form: form, ctype: "-", encoding: "gzip", body: bomb, parse: 1 << 20}
		if form == BodyMultipart {
			p.ctype = typeMultipart + "; boundary=B"
		}
		before := allocated()
		if got := SchemeOf(p.sum(t)); got != "raw2" {
			t.Errorf("%v: %s", form, got)
		}
		if n := allocated() - before; n > 16<<20 {
			t.Errorf("%v: %d bytes were allocated", form, n)
		}
	}
}

func TestABodyThatCannotBeReadIsAnError(t *testing.T) {
	broken := errors.New("the disk is gone")
	for name, p := range map[string]posted{
		"json":      {form: BodyJSON},
		"form":      {form: BodyForm, ctype: "-"},
		"multipart": {form: BodyMultipart, ctype: typeMultipart + "; boundary=B"},
		"gzip":      {form: BodyJSON, encoding: "gzip"},
		"deflate":   {form: BodyJSON, encoding: "deflate"},
	} {
		route, req := p.parts(t)
		body := bodyOf("--B\r\n")
		if p.encoding != "" {
			body = bodyOf(coded(t, p.encoding, "{}")[:6])
		}
		whole := body.Open
		body.Open = func() io.Reader { return io.MultiReader(whole(), iotest.ErrReader(broken)) }
		if fp, err := NewFingerprinter(nil).Sum(route, req, body); fp != "" || !errors.Is(err, broken) {
			t.Errorf("%s: %q %v", name, fp, err)
		}
		scheme := map[string]string{"form": "form1", "multipart": "multipart1"}[name]
		if scheme == "" {
			scheme = "json1"
		}
		if fp, ok, err := NewFingerprinter(nil).SumAs(scheme, route, req, body); fp != "" || ok || !errors.Is(err, broken) {
			t.Errorf("%s: %q %v %v", name, fp, ok, err)
		}
		// What needs no parsing needs no second look.
		if fp, ok, err := NewFingerprinter(nil).SumAs("raw1", route, req, body); fp == "" || !ok || err != nil {
			t.Errorf("%s: %q %v %v", name, fp, ok, err)
		}
	}
}

func TestASchemeOfAnotherTimeIsHonoured(t *testing.T) {
	p := posted{form: BodyJSON, ctype: typeJSON, body: `{"a":1}`}
	route, req := p.parts(t)
	plain, keyed, other := NewFingerprinter(nil), NewFingerprinter([]byte("0123456789abcdef")), NewFingerprinter([]byte("0123456789abcdeF"))
	as := func(f *Fingerprinter, scheme, body string) string {
		fp, ok, err := f.SumAs(scheme, route, req, bodyOf(body))
		if err != nil || ok == (fp == "") {
			t.Fatal(fp, ok, err)
		}
		return fp
	}
	for _, scheme := range []string{"raw1", "raw2", "json1"} {
		first := as(plain, scheme, p.body)
		if first == "" || as(keyed, scheme, p.body) != first {
			t.Errorf("%s: a record made before there was a key cannot be compared", scheme)
		}
		if as(plain, scheme, `{"a":2}`) == first {
			t.Errorf("%s: another body is the same", scheme)
		}
		if reordered := as(plain, scheme, `{ "a":1 }`); (reordered == first) != (scheme == "json1") {
			t.Errorf("%s: another spelling", scheme)
		}
		secret := as(keyed, scheme+"-hmac", p.body)
		if secret == "" || secret == as(other, scheme+"-hmac", p.body) || as(plain, scheme+"-hmac", p.body) != "" {
			t.Errorf("%s: an HMAC is not one", scheme)
		}
	}
	for _, scheme := range []string{"", "raw", "raw3", "json2", "RAW1", "probe", "json1-hmac", "form1", "multipart1"} {
		if fp := as(plain, scheme, p.body); fp != "" {
			t.Errorf("%q: %s", scheme, fp)
		}
	}
}

func TestAnotherPayloadIsAnotherRequestInEveryScheme(t *testing.T) {
	// Case 11: a digest of nothing, where the length was not known.
	for i := range schemes {
		s := &schemes[i]
		p := posted{form: s.form, ctype: "-", body: "1"}
		if s.form == BodyMultipart {
			p.ctype = typeMultipart + "; boundary=B"
			p.body = strings.ReplaceAll(parts("name=a|1"), "\n", "\r\n")
		}
		route, req := p.parts(t)
		f := NewFingerprinter([]byte("0123456789abcdef"))
		a, ok1, _ := f.SumAs(s.name, route, req, bodyOf(p.body))
		b, ok2, _ := f.SumAs(s.name, route, req, bodyOf(strings.Replace(p.body, "1", "2", 1)))
		if !ok1 || !ok2 || a == b || SchemeOf(a) != s.name {
			t.Errorf("%s: %s %s", s.name, a, b)
		}
	}
}

func BenchmarkParsed(b *testing.B) {
	object := `{"id":"ch_1","amount":1999,"currency":"usd","metadata":{"order":"4711","note":"caf\u00e9"},"items":[{"sku":"a","qty":1},{"sku":"b","qty":2.50}],"live":true}`
	for name, p := range map[string]posted{
		"json, small":   {form: BodyJSON, body: object},
		"json, 1 MiB":   {form: BodyJSON, body: "[" + strings.Repeat(object+",", 1<<20/len(object)) + "0]"},
		"json, members": {form: BodyJSON, body: `{"x":0` + manyMembers(60_000) + "}"},
		"form":          {form: BodyForm, ctype: "-", body: strings.Repeat("amount=1999&metadata%5Border%5D=4711&", 20) + "currency=usd"},
		"multipart":     {form: BodyMultipart, ctype: typeMultipart + "; boundary=B", body: strings.ReplaceAll(parts("name=a|1", "name=f; filename=x|"+strings.Repeat("x", 1<<20)), "\n", "\r\n")},
	} {
		b.Run(name, func(b *testing.B) {
			route, req := p.parts(b)
			f, body := NewFingerprinter(nil), bodyOf(p.body)
			b.SetBytes(int64(len(p.body)))
			b.ReportAllocs()
			for b.Loop() {
				if fp, err := f.Sum(route, req, body); err != nil || strings.HasPrefix(fp, "raw") {
					b.Fatal(fp, err)
				}
			}
		})
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	return b.String()
}

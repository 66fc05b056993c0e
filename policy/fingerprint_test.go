package policy

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// sample is one request of a test, with everything that a fingerprint can cover.
type sample struct {
	Request
	fields []string // the route's
	body   string
	key    string // the Fingerprinter's; "" is none
}

// bodyOf is a body as it is received.
func bodyOf(text string) Body {
	h := NewFingerprinter(nil).NewBody()
	io.WriteString(h, text)
	return Body{Sum: h.Sum(nil), Len: int64(len(text)), Open: func() io.Reader { return strings.NewReader(text) }}
}

func (s sample) route() *Route { return &Route{Fingerprint: FingerprintRule{Headers: s.fields}} }

func (s sample) sum() string {
	fp, err := NewFingerprinter([]byte(s.key)).Sum(s.route(), s.Request, bodyOf(s.body))
	if err != nil {
		panic(err)
	}
	return fp
}

// as is sum by another scheme; "" where that cannot be.
func (s sample) as(scheme string) string {
	fp, ok, err := NewFingerprinter([]byte(s.key)).SumAs(scheme, s.route(), s.Request, bodyOf(s.body))
	if err != nil || ok == (fp == "") {
		panic(fmt.Sprint(fp, ok, err))
	}
	return fp
}

// charge is the request the tests vary.
func charge() sample {
	return sample{
		Request: Request{
			Method: "POST",
			Target: Target{Scheme: "https", Host: "api.example.com", Path: "/v1/charges", Query: "expand=customer"},
			Header: map[string][]string{"Stripe-Version": {"2026-01-01"}, "Accept": {"*/*"}},
		},
		fields: []string{"Accept-Language", "Stripe-Version"},
		body:   `{"amount":100}`,
	}
}

func TestWhatMakesAnotherRequest(t *testing.T) {
	base := charge().sum()
	for name, change := range map[string]func(*sample){
		"method":                      func(s *sample) { s.Method = "PUT" },
		"method's case":               func(s *sample) { s.Method = "post" },
		"scheme":                      func(s *sample) { s.Target.Scheme = "http" },
		"host":                        func(s *sample) { s.Target.Host = "api.example.org" },
		"path":                        func(s *sample) { s.Target.Path = "/v1/refunds" },
		"path's encoding":             func(s *sample) { s.Target.Path = "/%761/charges" },
		"query":                       func(s *sample) { s.Target.Query = "expand=invoice" },
		"no query":                    func(s *sample) { s.Target.Query = "" },
		"query moved into the path":   func(s *sample) { s.Target.Path, s.Target.Query = "/v1/chargesexpand", "=customer" },
		"path moved into the host":    func(s *sample) { s.Target.Host, s.Target.Path = "api.example.com/v1", "/charges" },
		"body":                        func(s *sample) { s.body = `{"amount":101}` },
		"empty body":                  func(s *sample) { s.body = "" },
		"chosen field's value":        func(s *sample) { s.Header["Stripe-Version"] = []string{"2026-01-02"} },
		"chosen field absent":         func(s *sample) { delete(s.Header, "Stripe-Version") },
		"chosen field empty":          func(s *sample) { s.Header["Stripe-Version"] = []string{""} },
		"absent field comes, empty":   func(s *sample) { s.Header["Accept-Language"] = []string{""} },
		"chosen field twice":          func(s *sample) { s.Header["Stripe-Version"] = []string{"2026-01-01", "2026-01-01"} },
		"value cut in two":            func(s *sample) { s.Header["Stripe-Version"] = []string{"2026-", "01-01"} },
		"value under the other field": func(s *sample) { s.Header = map[string][]string{"Accept-Language": {"2026-01-01"}} },
		"one more chosen field":       func(s *sample) { s.fields = append(s.fields, "X-Absent") },
		"a trailer":                   func(s *sample) { s.Trailer = map[string][]string{"X-Sum": {"1"}} },
		"an empty trailer":            func(s *sample) { s.Trailer = map[string][]string{"X-Sum": {""}} },
		"a content coding":            func(s *sample) { s.Header["Content-Encoding"] = []string{"br"} },
		"chosen field is dropped":     func(s *sample) { s.Header["Connection"] = []string{"stripe-version"} },
		"keyed":                       func(s *sample) { s.key = "k" },
	} {
		t.Run(name, func(t *testing.T) {
			s := charge()
			change(&s)
			if s.sum() == base {
				t.Error("the fingerprint is the same")
			}
		})
	}
	for name, pair := range map[string][2]func(*sample){
		"trailer's value":  {func(s *sample) { s.Trailer = map[string][]string{"A": {"1"}} }, func(s *sample) { s.Trailer = map[string][]string{"A": {"2"}} }},
		"trailer's name":   {func(s *sample) { s.Trailer = map[string][]string{"A": {"1"}} }, func(s *sample) { s.Trailer = map[string][]string{"B": {"1"}} }},
		"order of codings": {func(s *sample) { s.Header["Content-Encoding"] = []string{"br, gzip"} }, func(s *sample) { s.Header["Content-Encoding"] = []string{"gzip, br"} }},
		"a coding twice":   {func(s *sample) { s.Header["Content-Encoding"] = []string{"gzip"} }, func(s *sample) { s.Header["Content-Encoding"] = []string{"gzip, gzip"} }},
		"a coding's name":  {func(s *sample) { s.Header["Content-Encoding"] = []string{"gzip"} }, func(s *sample) { s.Header["Content-Encoding"] = []string{"zstd"} }},
		"a dropped coding": {func(s *sample) { s.Header["Content-Encoding"] = []string{"gzip"} }, func(s *sample) {
			s.Header["Content-Encoding"], s.Header["Connection"] = []string{"gzip"}, []string{"Content-Encoding"}
		}},
		"coding and trailer": {func(s *sample) { s.Header["Content-Encoding"] = []string{"gzip"} }, func(s *sample) { s.Trailer = map[string][]string{"gzip": {""}} }},
	} {
		a, b := charge(), charge()
		pair[0](&a)
		pair[1](&b)
		if a.sum() == b.sum() {
			t.Errorf("%s: the fingerprint is the same", name)
		}
	}
	a, b := charge(), charge()
	a.key, b.key = "one", "two"
	if a.sum() == b.sum() {
		t.Error("two HMAC keys give one fingerprint")
	}
}

func TestWhatIsTheSameRequest(t *testing.T) {
	base := charge().sum()
	for name, change := range map[string]func(*sample){
		"other fields":                 func(s *sample) { s.Header["Accept"] = []string{"x"}; s.Header["Authorization"] = []string{"y"} },
		"order of the choice":          func(s *sample) { s.fields = []string{"Stripe-Version", "Accept-Language"} },
		"case of the choice":           func(s *sample) { s.fields = []string{"accept-language", "STRIPE-version"} },
		"case of the choice, sorted":   func(s *sample) { s.fields = []string{"accept-language", "stripe-version"} },
		"repetition in the choice":     func(s *sample) { s.fields = []string{"Accept-Language", "Accept-Language", "Stripe-Version"} },
		"absent and no values are one": func(s *sample) { s.Header["Accept-Language"] = []string{} },
		"a trailer that did not come":  func(s *sample) { s.Trailer = map[string][]string{"X-Sum": nil} },
		"no coding":                    func(s *sample) { s.Header["Content-Encoding"] = []string{"Identity", ""} },
		"other fields are dropped":     func(s *sample) { s.Header["Connection"] = []string{"keep-alive, accept"} },
	} {
		t.Run(name, func(t *testing.T) {
			s := charge()
			change(&s)
			if got := s.sum(); got != base {
				t.Errorf("%s and %s differ", got, base)
			}
		})
	}
}

func TestTheBodyIsHashedAsItIsRead(t *testing.T) {
	s := charge()
	f := NewFingerprinter(nil) // and the sample's key is empty: both are no key
	h := f.NewBody()
	for i := range len(s.body) {
		h.Write([]byte{s.body[i]})
	}
	route := &Route{Fingerprint: FingerprintRule{Headers: s.fields}}
	if got, err := f.Sum(route, s.Request, Body{Sum: h.Sum(nil), Len: int64(len(s.body))}); got != s.sum() || err != nil {
		t.Error("reads of one byte give another fingerprint", err)
	}
	if got, err := f.Sum(route, s.Request, Body{Sum: h.Sum(nil), Len: int64(len(s.body)) + 1}); got == s.sum() || err != nil {
		t.Error("the body's length is not covered", err)
	}
}

// A fingerprint lies in the ledger while Fencepost is updated. Where this test fails,
// the scheme has changed: give it a new name. The values were computed by a second
// implementation, from the description in Sum.
func TestSchemesNeverChange(t *testing.T) {
	small := sample{Request: Request{Method: "POST", Target: Target{Scheme: "http", Host: "h", Path: "/"}}}
	keyed := charge()
	keyed.key = "0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct {
		sample sample
		want   string
	}{
		"smallest": {small, "raw1:dcc03d472ac829a95ee6208969d7a40a4c2dc926cfbf4bfb170c411f4098281e"},
		"full":     {charge(), "raw1:ddfc83b98d563d4dbb7f06894f009084b80a2da8cdc4c4e3b74d1b3d55435904"},
		"keyed":    {keyed, "raw1-hmac:543a83037ba7ad0e8783dce7713bc280fc589c82a9237eee6f9f34f4d8549645"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.sample.as(SchemeOf(tc.want)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTheKeyIsTheFingerprintersOwn(t *testing.T) {
	key := []byte("0123456789abcdef")
	f := NewFingerprinter(key)
	before, _ := f.Sum(&Route{}, Request{}, Body{})
	clear(key)
	if after, _ := f.Sum(&Route{}, Request{}, Body{}); after != before {
		t.Error("changing the caller's slice changes fingerprints")
	}
}

func TestAFingerprintNamesItsScheme(t *testing.T) {
	plain, keyed := charge(), charge()
	keyed.key = "k"
	for _, tc := range []struct{ fp, want string }{
		{plain.sum(), "raw2"},
		{keyed.sum(), "raw2-hmac"},
		{"json2:00", "json2"}, // of a later version
		{"", ""},
		{"raw1", ""},
	} {
		if got := SchemeOf(tc.fp); got != tc.want {
			t.Errorf("SchemeOf(%q) = %q, want %q", tc.fp, got, tc.want)
		}
	}
	form := regexp.MustCompile(`^[a-z0-9-]+:[0-9a-f]{64}$`)
	if !form.MatchString(plain.sum()) || !form.MatchString(keyed.sum()) {
		t.Errorf("not scheme and 64 digits: %s, %s", plain.sum(), keyed.sum())
	}
}

// Different input, different fingerprint. The second request is made of the first
// one's bytes with the borders moved, which is what a hash without lengths falls for.
func FuzzDifferentInputDifferentFingerprint(f *testing.F) {
	f.Add("POST", "h", "/p", "q", "v", "w", "body", uint8(2), uint8(5), uint8(9), false)
	f.Add("", "", "", "", "", "", "", uint8(0), uint8(0), uint8(0), true)
	f.Fuzz(func(t *testing.T, method, host, path, query, v, w, body string, i, j, k uint8, keyed bool) {
		build := func(method, host, path, query, v, w, body string) sample {
			s := sample{body: body, fields: []string{"A"}, Request: Request{
				Method: method, Target: Target{Scheme: "http", Host: host, Path: path, Query: query},
				Header: map[string][]string{"A": {v, w}},
			}}
			if keyed {
				s.key = "key"
			}
			return s
		}
		all := method + host + path + query + v + w
		cut := []int{int(i) % (len(all) + 1), int(j) % (len(all) + 1), int(k) % (len(all) + 1)}
		a := build(method, host, path, query, v, w, body)
		b := build(all[:min(cut[0], cut[1])], all[min(cut[0], cut[1]):cut[1]], "", "", "", all[cut[1]:], body)
		c := build(method, host, path+query, "", v+w, "", body)
		d := build(method, host, path, query, v, w, body+w)
		same := func(x, y sample) bool {
			return x.Method == y.Method && x.Target == y.Target && x.body == y.body &&
				x.Header["A"][0] == y.Header["A"][0] && x.Header["A"][1] == y.Header["A"][1]
		}
		samples := []sample{a, b, c, d}
		for x := range samples {
			for y := range x {
				if equal := samples[x].sum() == samples[y].sum(); equal != same(samples[x], samples[y]) {
					t.Fatalf("fingerprints equal: %v\n%+v\n%+v", equal, samples[x], samples[y])
				}
			}
		}
	})
}

func TestAFingerprintCostsOneAllocation(t *testing.T) {
	f, s := NewFingerprinter(nil), charge()
	route, body := s.route(), Body{Sum: make([]byte, 32), Len: 1}
	if n := testing.AllocsPerRun(100, func() { f.Sum(route, s.Request, body) }); n != 1 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFingerprint(b *testing.B) {
	body := []byte(strings.Repeat("x", 1024))
	for name, key := range map[string][]byte{"raw2": nil, "raw2-hmac": []byte("0123456789abcdef")} {
		b.Run(name, func(b *testing.B) {
			f, s := NewFingerprinter(key), charge()
			route := &Route{Fingerprint: FingerprintRule{Headers: s.fields}}
			sum := make([]byte, 0, 32)
			b.ReportAllocs()
			for b.Loop() {
				h := f.NewBody()
				h.Write(body)
				sum = h.Sum(sum[:0])
				f.Sum(route, s.Request, Body{Sum: sum, Len: int64(len(body))})
			}
		})
	}
}

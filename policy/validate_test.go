package policy

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

// upstream parses a URL of a test.
func upstream(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// table builds a Table that must be valid, giving each route a name and an upstream
// where it has none.
func table(t testing.TB, routes ...Route) *Table {
	t.Helper()
	for i := range routes {
		if routes[i].Name == "" {
			routes[i].Name = "r" + string(rune('0'+i))
		}
		if routes[i].Upstream == nil && !routes[i].Egress {
			routes[i].Upstream = upstream(t, "http://up")
		}
	}
	built, err := NewTable(routes)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func TestDefaults(t *testing.T) {
	got := *table(t, Route{Name: "r"}).Routes()[0]
	want := Route{
		Name:        "r",
		Upstream:    upstream(t, "http://up"),
		Methods:     []string{"POST", "PUT", "PATCH", "DELETE"},
		Key:         KeyRule{Header: "Idempotency-Key", Missing: MissingReject},
		UpstreamKey: UpstreamKeyRule{Send: SendSame, Header: "Idempotency-Key"},
		Timeout:     60 * time.Second,
		Limits:      Limits{Request: 10 << 20, Response: 1 << 20, Parse: 4 << 20},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestWhatIsGivenIsKeptInCanonicalForm(t *testing.T) {
	got := *table(t, Route{
		Name: "r", Host: "*.API.Example.com.", Path: "/%76%31/%2fx/", Upstream: upstream(t, "HTTPS://Up.example:443/Base/"),
		Enforce: true, Methods: []string{"DELETE"},
		Key:         KeyRule{Header: "x-request-key", Missing: MissingPass},
		UpstreamKey: UpstreamKeyRule{Send: SendNone},
		Fingerprint: FingerprintRule{Headers: []string{"stripe-version", "Accept-language", "Stripe-Version", "content-type"}},
		Wait:        time.Second, Timeout: time.Minute, Limits: Limits{1, 2, 3},
	}).Routes()[0]
	want := Route{
		Name: "r", Host: "*.api.example.com", Path: "/v1/%2Fx/", Upstream: upstream(t, "https://up.example/Base/"),
		Enforce: true, Methods: []string{"DELETE"},
		Key:         KeyRule{Header: "X-Request-Key", Missing: MissingPass},
		UpstreamKey: UpstreamKeyRule{Send: SendNone, Header: "X-Request-Key"},
		Fingerprint: FingerprintRule{Headers: []string{"Accept-Language", "Content-Type", "Stripe-Version"}},
		Wait:        time.Second, Timeout: time.Minute, Limits: Limits{1, 2, 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if r := table(t, Route{UpstreamKey: UpstreamKeyRule{Header: "x-key"}}).Routes()[0]; r.UpstreamKey.Header != "X-Key" || r.Key.Header != "Idempotency-Key" {
		t.Errorf("the upstream's own field: %+v, %+v", r.UpstreamKey, r.Key)
	}
}

func TestATableSharesNothingWithWhatItWasMadeOf(t *testing.T) {
	given := []Route{{
		Name: "r", Upstream: upstream(t, "http://up"), Methods: []string{"POST"},
		Fingerprint: FingerprintRule{Headers: []string{"Accept"}}, UpstreamKey: UpstreamKeyRule{Methods: []string{"POST"}},
	}}
	r := table(t, given...).Routes()[0]
	given[0].Methods[0], given[0].Fingerprint.Headers[0], given[0].Upstream.Host, given[0].UpstreamKey.Methods[0] = "GET", "Cookie", "evil", "PUT"
	if r.Methods[0] != "POST" || r.Fingerprint.Headers[0] != "Accept" || r.Upstream.Host != "up" || r.UpstreamKey.Methods[0] != "POST" {
		t.Errorf("changed from outside: %+v", r)
	}
}

func TestWhatARouteMayNotSay(t *testing.T) {
	long := strings.Repeat("a.", 126) + "aa" // 254 characters
	for name, tc := range map[string]struct {
		change func(*Route)
		want   string
	}{
		"no name":                     {func(r *Route) { r.Name = "" }, "route 1: name: must be"},
		"name with a space":           {func(r *Route) { r.Name = "a b" }, `route "a b": name: must be`},
		"name too long":               {func(r *Route) { r.Name = strings.Repeat("n", 65) }, "name: must be"},
		"host with a port":            {func(r *Route) { r.Host = "h:80" }, "match.host: is not a host name"},
		"host that is a URL":          {func(r *Route) { r.Host = "http://h" }, "match.host: "},
		"host of one dot":             {func(r *Route) { r.Host = "." }, "match.host: "},
		"host with an empty label":    {func(r *Route) { r.Host = "a..b" }, "match.host: "},
		"host with a long label":      {func(r *Route) { r.Host = strings.Repeat("a", 64) }, "match.host: "},
		"host too long":               {func(r *Route) { r.Host = long }, "match.host: is longer than 253"},
		"host that is not ASCII":      {func(r *Route) { r.Host = "café.fr" }, "match.host: "},
		"host that is only a star":    {func(r *Route) { r.Host = "*" }, "match.host: "},
		"star without a dot":          {func(r *Route) { r.Host = "*example.com" }, "match.host: "},
		"star in the middle":          {func(r *Route) { r.Host = "a.*.com" }, "match.host: "},
		"star twice":                  {func(r *Route) { r.Host = "*.*.com" }, "match.host: "},
		"names below an address":      {func(r *Route) { r.Host = "*.127.0.0.1" }, "match.host: an address"},
		"half an address":             {func(r *Route) { r.Host = "127.1" }, "match.host: ends in a number"},
		"a number for an address":     {func(r *Route) { r.Host = "2130706433" }, "match.host: ends in a number"},
		"hexadecimal address":         {func(r *Route) { r.Host = "127.0X7F" }, "match.host: ends in a number"},
		"address with a zone":         {func(r *Route) { r.Host = "fe80::1%eth0" }, "match.host: "},
		"relative path":               {func(r *Route) { r.Path = "v1/" }, "match.path: the path does not start"},
		"path with dots":              {func(r *Route) { r.Path = "/v1/../" }, "match.path: "},
		"path with a query":           {func(r *Route) { r.Path = "/v1?x" }, "match.path: "},
		"no upstream":                 {func(r *Route) { r.Upstream = nil }, "upstream: is missing"},
		"upstream of another scheme":  {func(r *Route) { r.Upstream = upstream(t, "ftp://h") }, "upstream: the scheme"},
		"upstream without a scheme":   {func(r *Route) { r.Upstream = upstream(t, "//h") }, "upstream: the scheme"},
		"upstream without a host":     {func(r *Route) { r.Upstream = upstream(t, "http:///x") }, "upstream: host: "},
		"upstream with a password":    {func(r *Route) { r.Upstream = upstream(t, "http://u:SECRET@h") }, "upstream: a URL is no place"},
		"upstream with a query":       {func(r *Route) { r.Upstream = upstream(t, "http://h/?a=b") }, "upstream: must have no query"},
		"upstream with an empty one":  {func(r *Route) { r.Upstream = upstream(t, "http://h/?") }, "upstream: must have no query"},
		"upstream with a fragment":    {func(r *Route) { r.Upstream = upstream(t, "http://h/#a") }, "upstream: must have no query"},
		"upstream with a bad host":    {func(r *Route) { r.Upstream = upstream(t, "http://a..b") }, "upstream: host: "},
		"upstream with a zone":        {func(r *Route) { r.Upstream = upstream(t, "http://[fe80::1%25eth0]") }, "upstream: host: "},
		"upstream with port 0":        {func(r *Route) { r.Upstream = upstream(t, "http://h:0") }, "upstream: the port"},
		"upstream with port 65536":    {func(r *Route) { r.Upstream = upstream(t, "http://h:65536") }, "upstream: the port"},
		"upstream with port 080":      {func(r *Route) { r.Upstream = upstream(t, "http://h:080") }, "upstream: the port"},
		"upstream with dots":          {func(r *Route) { r.Upstream = upstream(t, "http://h/a/../b") }, "upstream: the path"},
		"method in lower case":        {func(r *Route) { r.Methods = []string{"POST", "put"} }, `methods: "put"`},
		"method that is no token":     {func(r *Route) { r.Methods = []string{"PO ST"} }, "methods: "},
		"safe method":                 {func(r *Route) { r.Methods = []string{"GET"} }, "methods: GET is safe"},
		"recognised lower case":       {func(r *Route) { r.UpstreamKey.Methods = []string{"post"} }, `upstream_key.methods: "post"`},
		"recognised safe method":      {func(r *Route) { r.UpstreamKey.Methods = []string{"GET"} }, "upstream_key.methods: GET is safe"},
		"CONNECT":                     {func(r *Route) { r.Methods = []string{"CONNECT"} }, "methods: CONNECT"},
		"unknown choice, key":         {func(r *Route) { r.Key.Missing = 3 }, "key.missing: "},
		"unknown choice, upstream":    {func(r *Route) { r.UpstreamKey.Send = 3 }, "upstream_key.send: "},
		"key field that is no token":  {func(r *Route) { r.Key.Header = "Idempotency Key" }, "key.header: "},
		"key field, underscore":       {func(r *Route) { r.Key.Header = "Idempotency_Key" }, "key.header: "},
		"key field, hop-by-hop":       {func(r *Route) { r.Key.Header = "keep-alive" }, "key.header: Keep-Alive is hop-by-hop"},
		"key field, ours":             {func(r *Route) { r.Key.Header = "fencepost-key" }, "key.header: Fencepost-Key is one of"},
		"key field, credential":       {func(r *Route) { r.Key.Header = "authorization" }, "key.header: Authorization is a credential"},
		"key field, cookie":           {func(r *Route) { r.Key.Header = "Cookie" }, "key.header: Cookie is a credential"},
		"key field, host":             {func(r *Route) { r.Key.Header = "Host" }, "key.header: Host is set on the way"},
		"key field, type":             {func(r *Route) { r.Key.Header = "Content-type" }, "key.header: Content-Type has a meaning"},
		"key field, preference":       {func(r *Route) { r.Key.Header = "Prefer" }, "key.header: Prefer has a meaning"},
		"upstream's field, bad":       {func(r *Route) { r.UpstreamKey.Header = "a b" }, "upstream_key.header: "},
		"fingerprint, bad field":      {func(r *Route) { r.Fingerprint.Headers = []string{"a b"} }, "fingerprint.headers: "},
		"fingerprint, credential":     {func(r *Route) { r.Fingerprint.Headers = []string{"authorization"} }, "fingerprint.headers: Authorization"},
		"fingerprint, preference":     {func(r *Route) { r.Fingerprint.Headers = []string{"prefer"} }, "fingerprint.headers: Prefer"},
		"fingerprint, the key itself": {func(r *Route) { r.Fingerprint.Headers = []string{"idempotency-key"} }, "fingerprint.headers: "},
		"negative wait":               {func(r *Route) { r.Wait = -1 }, "duplicates.wait: "},
		"negative timeout":            {func(r *Route) { r.Timeout = -1 }, "timeout: must be positive"},
		"negative request limit":      {func(r *Route) { r.Limits.Request = -1 }, "limits.request: must be positive"},
		"negative response limit":     {func(r *Route) { r.Limits.Response = -1 }, "limits.response: must be positive"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Route{Name: "charges", Upstream: upstream(t, "http://up")}
			tc.change(&r)
			built, err := NewTable([]Route{r})
			if built != nil || err == nil {
				t.Fatal("accepted")
			}
			if got := err.Error(); !strings.HasPrefix(got, "route ") || !strings.Contains(got, tc.want) || strings.Contains(got, "\n") {
				t.Errorf("got %q, want one problem, of a route, with %q", got, tc.want)
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("tells a password: %v", err)
			}
		})
	}
}

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/token"
)

// Config is a whole configuration, with defaults filled in.
type Config struct {
	Listen         string   `yaml:"listen"`
	TLS            TLS      `yaml:"tls"`
	AllowAnonymous bool     `yaml:"allow_anonymous"`
	Admin          Admin    `yaml:"admin"`
	Egress         Egress   `yaml:"egress"`
	Ledger         Ledger   `yaml:"ledger"`
	Callers        []Caller `yaml:"callers"`
	Routes         []Route  `yaml:"routes"`
	Forwarded      string   `yaml:"forwarded"`
	Limits         Limits   `yaml:"limits"`
	Upstreams      Upstream `yaml:"upstreams"`
	Drain          Drain    `yaml:"drain"`
	Log            Log      `yaml:"log"`
}

// TLS is the certificate of the listener: PEM files, read again when they change.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Admin is the admin listener: health and metrics.
type Admin struct {
	Listen string `yaml:"listen"`
	Token  Secret `yaml:"token"`
}

// Egress is the egress proxy.
type Egress struct {
	Listen     string   `yaml:"listen"`
	Mode       string   `yaml:"mode"`
	Allow      []string `yaml:"allow"`
	AllowCIDRs []string `yaml:"allow_cidrs"`
	Ports      []int    `yaml:"ports"`
	AnyPort    bool     `yaml:"any_port"`
	Parent     Secret   `yaml:"parent"`
	MaxTunnels int      `yaml:"max_tunnels"`
	TunnelIdle Duration `yaml:"tunnel_idle"`
	CA         EgressCA `yaml:"ca"`
}

// EgressCA says where the authority is that signs for intercepted hosts.
type EgressCA struct {
	Dir string `yaml:"dir"`
}

// Ledger says where records are kept and for how long.
type Ledger struct {
	URL            Secret   `yaml:"url"`
	Retention      Duration `yaml:"retention"`
	Tombstone      Duration `yaml:"tombstone"`
	FingerprintKey Secret   `yaml:"fingerprint_key"`
	Seal           []Seal   `yaml:"seal"`
	CompressFrom   Bytes    `yaml:"compress_from"`
	Timeout        Duration `yaml:"timeout"`
	OwnerDeadline  Duration `yaml:"owner_deadline"`
	SweepEvery     Duration `yaml:"sweep_every"`
	Replicas       int      `yaml:"replicas"`
	ReplicaTimeout Duration `yaml:"replica_timeout"`
	ReplicaFsync   bool     `yaml:"replica_fsync"`
	OnRollback     string   `yaml:"on_rollback"`
	Prefix         string   `yaml:"prefix"`
	CA             string   `yaml:"ca"`
}

// Seal is a key that seals recorded responses.
type Seal struct {
	ID  string `yaml:"id"`
	Key Secret `yaml:"key"`
}

// Caller is one identity that may call.
type Caller struct {
	Name  string `yaml:"name"`
	Token Secret `yaml:"token"`
}

// Route is one rule; the first that matches wins.
type Route struct {
	Name        string      `yaml:"name"`
	Profile     string      `yaml:"profile"`
	Match       Match       `yaml:"match"`
	Upstream    string      `yaml:"upstream"`
	HTTP        string      `yaml:"upstream_http"`
	TLS         UpstreamTLS `yaml:"upstream_tls"`
	StripPath   string      `yaml:"strip_path"`
	Host        string      `yaml:"host"`
	Headers     Headers     `yaml:"headers"`
	Enforce     bool        `yaml:"enforce"`
	Methods     []string    `yaml:"methods"`
	Key         Key         `yaml:"key"`
	UpstreamKey UpstreamKey `yaml:"upstream_key"`
	Fingerprint Fingerprint `yaml:"fingerprint"`
	Duplicates  Duplicates  `yaml:"duplicates"`
	Timeout     Duration    `yaml:"timeout"`
	Limits      RouteLimits `yaml:"limits"`
	Lease       Lease       `yaml:"lease"`
	Outcomes    []Outcome   `yaml:"outcomes"`
	Capture     Pairs       `yaml:"capture"`
	Reconcile   *Reconcile  `yaml:"reconcile"`
}

// UpstreamTLS is how TLS to an upstream is checked, and what the client shows.
type UpstreamTLS struct {
	CA         string `yaml:"ca"`
	Cert       string `yaml:"cert"`
	Key        string `yaml:"key"`
	ServerName string `yaml:"server_name"`
}

// Headers changes requests on their way.
type Headers struct {
	Set    SecretPairs `yaml:"set"`
	Remove []string    `yaml:"remove"`
}

// Outcome is a rule for what an answer is worth.
type Outcome struct {
	When  string `yaml:"when"`
	Class string `yaml:"class"`
}

// Reconcile says how the provider is asked about an unknown outcome.
type Reconcile struct {
	Lookup    Lookup   `yaml:"lookup"`
	Confirmed string   `yaml:"confirmed"`
	NotFound  string   `yaml:"not_found"`
	Complete  bool     `yaml:"complete"`
	Settle    Duration `yaml:"settle"`
	Response  Response `yaml:"response"`
	Timeout   Duration `yaml:"timeout"`
	Every     Duration `yaml:"every"`
	MaxEvery  Duration `yaml:"max_every"`
}

func (r *Reconcile) defaults() {
	*r = Reconcile{
		Lookup: Lookup{Method: "GET"}, Settle: Duration(30 * time.Second), Response: Response{Status: 200},
		Timeout: Duration(10 * time.Second), Every: Duration(30 * time.Second), MaxEvery: Duration(time.Hour),
	}
}

// Lookup is the request that asks the provider.
type Lookup struct {
	Method  string      `yaml:"method"`
	URL     string      `yaml:"url"`
	Headers SecretPairs `yaml:"headers"`
}

// Response is what duplicates get once an effect is confirmed.
type Response struct {
	Status int    `yaml:"status"`
	JSON   string `yaml:"json"`
}

// Lease says whether requests must be made under a lease, and whose.
type Lease struct {
	Required bool   `yaml:"required"`
	Source   string `yaml:"source"`
}

func (r *Route) defaults() {
	*r = Route{
		HTTP: "http1", Host: "upstream", Enforce: true, Methods: []string{"POST", "PUT", "PATCH", "DELETE"},
		Key:         Key{Header: "Idempotency-Key", Missing: "reject", Window: Duration(10 * time.Minute)},
		Duplicates:  Duplicates{SamePayload: "allow", Window: Duration(10 * time.Minute)},
		UpstreamKey: UpstreamKey{Send: "same"},
		Fingerprint: Fingerprint{Body: "raw"},
		Timeout:     Duration(60 * time.Second),
		Limits:      RouteLimits{Request: 10 << 20, Response: 1 << 20, Parse: 4 << 20},
		Lease:       Lease{Source: "fencepost"},
	}
}

// Match says which requests a route is for.
type Match struct {
	Host string `yaml:"host"`
	Path string `yaml:"path"`
}

// Key says where the idempotency key is and what happens without one.
type Key struct {
	Header  string   `yaml:"header"`
	Missing string   `yaml:"missing"`
	Window  Duration `yaml:"window"`
}

// UpstreamKey says which key the upstream gets, and in which field.
type UpstreamKey struct {
	Send            string   `yaml:"send"`
	Header          string   `yaml:"header"`
	DeduplicatesFor Duration `yaml:"deduplicates_for"`
	Methods         []string `yaml:"methods"`
}

// Fingerprint says what makes two requests the same one.
type Fingerprint struct {
	Body    string   `yaml:"body"`
	Ignore  []string `yaml:"ignore"`
	Headers []string `yaml:"headers"`
}

// Duplicates says what a duplicate gets while the first is in flight.
type Duplicates struct {
	Wait        Duration `yaml:"wait"`
	SamePayload string   `yaml:"same_payload"`
	Window      Duration `yaml:"window"`
}

// RouteLimits bound one exchange.
type RouteLimits struct {
	Request  Bytes `yaml:"request"`
	Response Bytes `yaml:"response"`
	Parse    Bytes `yaml:"parse"`
}

// Limits bound the process.
type Limits struct {
	Header        Bytes    `yaml:"header"`
	HeaderTimeout Duration `yaml:"header_timeout"`
	BodyTimeout   Duration `yaml:"body_timeout"`
	BodyMemory    Bytes    `yaml:"body_memory"`
	StreamAfter   Duration `yaml:"stream_after"`
	IdleTimeout   Duration `yaml:"idle_timeout"`
	Wait          Duration `yaml:"wait"`
	LateAnswer    Duration `yaml:"late_answer"`
	Waiters       int      `yaml:"waiters"`
	Pending       int      `yaml:"pending"`
	PendingBytes  Bytes    `yaml:"pending_bytes"`
}

// Upstream tunes the connections to upstreams.
type Upstream struct {
	MaxIdle     int      `yaml:"max_idle"`
	MaxConns    int      `yaml:"max_conns"`
	IdleTimeout Duration `yaml:"idle_timeout"`
	DialTimeout Duration `yaml:"dial_timeout"`
	TLSTimeout  Duration `yaml:"tls_timeout"`
	Header      Bytes    `yaml:"header"`
	CA          string   `yaml:"ca"`
}

// Drain says how a stop goes.
type Drain struct {
	Delay   Duration `yaml:"delay"`
	Timeout Duration `yaml:"timeout"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Default is the configuration without a file: what every key is when it is
// left out. It has no routes.
func Default() *Config {
	return &Config{
		Listen: "127.0.0.1:8080",
		Admin:  Admin{Listen: "127.0.0.1:8081"},
		Ledger: Ledger{
			URL: "sqlite://fencepost.db", Retention: Duration(24 * time.Hour), Tombstone: Duration(720 * time.Hour),
			Timeout: Duration(2 * time.Second), OwnerDeadline: Duration(30 * time.Second), SweepEvery: Duration(time.Minute),
			OnRollback: "refuse", CompressFrom: 4 << 10,
		},
		Egress: Egress{
			Mode: "enforce", Allow: []string{}, AllowCIDRs: []string{}, Ports: []int{443, 80}, MaxTunnels: 10_000, TunnelIdle: Duration(10 * time.Minute), CA: EgressCA{Dir: "ca"},
		},
		Forwarded: "off",
		Limits: Limits{
			Header: 64 << 10, HeaderTimeout: Duration(10 * time.Second), BodyTimeout: Duration(60 * time.Second), BodyMemory: 256 << 10,
			StreamAfter: Duration(500 * time.Millisecond),
			IdleTimeout: Duration(120 * time.Second), Wait: Duration(60 * time.Second), LateAnswer: Duration(5 * time.Minute), Waiters: 10_000, Pending: 10_000, PendingBytes: 256 << 20,
		},
		Upstreams: Upstream{
			MaxIdle: 256, IdleTimeout: Duration(30 * time.Second), DialTimeout: Duration(10 * time.Second), TLSTimeout: Duration(10 * time.Second), Header: 1 << 20,
		},
		Drain: Drain{Timeout: Duration(30 * time.Second)},
		Log:   Log{Level: "info", Format: "json"},
	}
}

// Load reads and checks a file. The error is *Problems where the file could be
// read at all.
func Load(file string) (*Config, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return Parse(file, src, os.LookupEnv)
}

// LoadAdmin reads a file for its admin listener and token only: secrets that
// those do not need may be missing from the environment.
func LoadAdmin(file string) (*Admin, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	missing := 0
	c, err := Parse(file, src, func(name string) (string, bool) {
		if v, ok := os.LookupEnv(name); ok && v != "" {
			return v, true
		}
		missing++
		return fmt.Sprintf("%s-%016d", unset, missing), true
	})
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(c.Admin.Token), unset) {
		return nil, errors.New("admin.token is read from the environment, and its variable is not set; set it, or FENCEPOST_ADMIN_TOKEN")
	}
	return &c.Admin, nil
}

// unset stands for a secret that nobody needs now.
const unset = "unset-secret"

// Parse reads and checks a configuration; getenv looks secrets up.
func Parse(file string, src []byte, getenv func(string) (string, bool)) (*Config, error) {
	d := &decoder{places: make(map[string]*token.Position), failed: make(map[string]bool), presets: make(map[string]string), getenv: getenv}
	c := Default()
	if root := d.parse(src); root != nil {
		d.value(root, reflect.ValueOf(c).Elem(), "")
		c.validate(&checker{report: d.at, failed: d.failed, origin: d.origin})
	}
	if len(d.problems) > 0 {
		return nil, &Problems{File: file, List: arrange(d.problems)}
	}
	return c, nil
}

// FromFlags is the configuration of `serve --upstream URL`: one route for
// everything.
func FromFlags(upstream string) (*Config, error) {
	c := Default()
	var r Route
	r.defaults()
	r.Name, r.Upstream = "all", upstream
	c.Routes = []Route{r}
	return c, c.Check()
}

// Check validates a configuration that did not come from a file.
func (c *Config) Check() error {
	var list []Problem
	c.validate(&checker{report: func(path, message string) {
		list = append(list, Problem{Path: path, Message: message})
	}})
	if len(list) > 0 {
		return &Problems{File: "configuration", List: arrange(list)}
	}
	return nil
}

// ForRun is the configuration of `run` without a file: every host may be reached
// and is looked into, requests that bring a key are governed, and others pass. What
// it keeps is in the folder state.
func ForRun(state, adminToken string) *Config {
	c := Default()
	c.Listen, c.Admin.Listen, c.Egress.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.Admin.Token = Secret(adminToken)
	c.Egress.Allow, c.Egress.AnyPort = []string{"*"}, true
	c.Egress.CA.Dir = filepath.Join(state, "ca")
	c.Ledger.URL = Secret("sqlite://" + filepath.Join(state, "run.db"))
	c.Log.Level, c.Log.Format = "error", "text"
	var r Route
	r.defaults()
	r.Name, r.Key.Missing = "all", "pass"
	c.Routes = []Route{r}
	return c
}

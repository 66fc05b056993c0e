package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"fencepost/policy"
	"fencepost/proxy/internal/upstream"
)

// way is how upstreams are reached under one ConnectRule.
type way struct {
	// pool sends what must be sent once.
	pool *upstream.Pool
	// loose sends, once, what is not governed. It is pool, but for the egress proxy:
	// there it takes HTTP/2 where it can, which some clients cannot do without.
	loose *upstream.Pool
	// transport sends what is safe to send again.
	transport *http.Transport
	dial      dialFunc
}

// wayKey tells ways apart.
type wayKey struct {
	rule   policy.ConnectRule
	egress bool
}

// ways makes and keeps the ways of the rules in force. Routes with the same
// ConnectRule share one, also across a reload, so that connections are kept.
type ways struct {
	config UpstreamConfig
	dials  map[bool]dialFunc // by wayKey.egress
	// plain and plainEgress are the ways without a rule of a route.
	plain, plainEgress *way

	mu   sync.Mutex
	made map[wayKey]*way
}

// loaded are rules with the ways that their routes need.
type loaded struct {
	Rules
	ways        map[*policy.Route]*way
	plainEgress *way
}

// all are the routes of both tables.
func (r *Rules) all() []*policy.Route {
	routes := r.Routes.Routes()
	if r.EgressRoutes != nil {
		routes = append(routes, r.EgressRoutes.Routes()...)
	}
	return routes
}

func newWays(c UpstreamConfig, egress dialFunc) *ways {
	d := &net.Dialer{Timeout: c.DialTimeout, KeepAlive: 30 * time.Second}
	s := &ways{config: c, dials: map[bool]dialFunc{false: d.DialContext, true: egress}}
	var err, egressErr error
	s.plain, err = s.make(wayKey{})
	s.plainEgress, egressErr = s.make(wayKey{egress: true})
	if err != nil || egressErr != nil {
		panic(errors.Join(err, egressErr)) // unreachable: there is nothing to read in them
	}
	s.made = s.standard()
	return s
}

func (s *ways) standard() map[wayKey]*way {
	return map[wayKey]*way{{}: s.plain, {egress: true}: s.plainEgress}
}

// load finds the way of each route. Ways that no route needs any more are left to
// the requests under way; their connections close when they have idled.
func (s *ways) load(r Rules) (*loaded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	routes := r.all()
	next := s.standard()
	l := &loaded{Rules: r, plainEgress: s.plainEgress, ways: make(map[*policy.Route]*way, len(routes))}
	var errs []error
	for _, route := range routes {
		key := wayKey{route.Connect, route.Egress}
		w := next[key]
		if w == nil {
			w = s.made[key]
		}
		if w == nil {
			var err error
			if w, err = s.make(key); err != nil {
				errs = append(errs, fmt.Errorf("route %q: %w", route.Name, err))
				continue
			}
		}
		next[key], l.ways[route] = w, w
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.made = next
	return l, nil
}

// idle is how many connections wait for a request.
func (s *ways) idle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, w := range s.made {
		n += w.pool.Stats().Idle
	}
	return n
}

func (s *ways) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.made {
		w.pool.Close()
		w.loose.Close()
		w.transport.CloseIdleConnections()
	}
}

func (s *ways) make(key wayKey) (*way, error) {
	config, err := clientTLS(s.config, key.rule)
	if err != nil {
		return nil, err
	}
	dial := s.dials[key.egress]
	w := &way{dial: dial, pool: newPool(s.config, key.rule, config, dial)}
	w.loose = w.pool
	rule := key.rule
	if key.egress && rule.HTTP == policy.HTTP1 {
		rule.HTTP = policy.HTTP2
		w.loose = newPool(s.config, rule, config, dial)
	}
	w.transport = newTransport(s.config, rule, config, dial)
	return w, nil
}

// clientTLS is the TLS configuration of a rule.
func clientTLS(c UpstreamConfig, rule policy.ConnectRule) (*tls.Config, error) {
	config := &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12, ServerName: rule.ServerName}
	if rule.Roots != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(rule.Roots)) {
			return nil, errors.New("upstream_tls.ca: the file holds no certificate in PEM form")
		}
	}
	if rule.Certificate != "" {
		cert, err := tls.X509KeyPair([]byte(rule.Certificate), []byte(rule.Key))
		if err != nil {
			return nil, fmt.Errorf("upstream_tls: the client certificate cannot be used: %w", err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

func newPool(c UpstreamConfig, rule policy.ConnectRule, config *tls.Config, dial dialFunc) *upstream.Pool {
	return upstream.New(upstream.Options{
		TLS: config, HTTP2: rule.HTTP == policy.HTTP2, H2C: rule.HTTP == policy.H2C, DialContext: dial,
		MaxIdlePerHost: c.MaxIdle, MaxConnsPerHost: c.MaxConns,
		MaxHeaderBytes: c.MaxHeaderBytes, IdleTimeout: c.IdleTimeout, DialTimeout: c.DialTimeout, TLSHandshakeTimeout: c.TLSTimeout,
	})
}

// newTransport is the transport for what is safe to send again. It changes
// nothing on the way: no compression of its own, no proxy picked up from the
// environment.
func newTransport(c UpstreamConfig, rule policy.ConnectRule, config *tls.Config, dial dialFunc) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(rule.HTTP != policy.H2C)
	protocols.SetHTTP2(rule.HTTP == policy.HTTP2)
	protocols.SetUnencryptedHTTP2(rule.HTTP == policy.H2C)
	return &http.Transport{
		Proxy: nil, DialContext: dial, DisableCompression: true, Protocols: protocols,
		MaxIdleConns: 0, MaxIdleConnsPerHost: c.MaxIdle, IdleConnTimeout: c.IdleTimeout,
		TLSClientConfig: config, TLSHandshakeTimeout: c.TLSTimeout, MaxResponseHeaderBytes: c.MaxHeaderBytes,
		WriteBufferSize: bufferSize / 4, ReadBufferSize: bufferSize / 4,
	}
}

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
	// transport sends what is safe to send again.
	transport *http.Transport
}

// ways makes and keeps the ways of the rules in force. Routes with the same
// ConnectRule share one, also across a reload, so that connections are kept.
type ways struct {
	config UpstreamConfig
	// plain is the way without a rule of a route.
	plain *way

	mu   sync.Mutex
	made map[policy.ConnectRule]*way
}

func newWays(c UpstreamConfig) *ways {
	plain, err := newWay(c, policy.ConnectRule{})
	if err != nil {
		panic(err) // unreachable: there is nothing to read in it
	}
	return &ways{config: c, plain: plain, made: map[policy.ConnectRule]*way{{}: plain}}
}

// forRoutes gives the way of each route. Ways that no route needs any more are
// left to the requests under way; their connections close when they have idled.
func (s *ways) forRoutes(routes []*policy.Route) (map[*policy.Route]*way, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[policy.ConnectRule]*way{{}: s.plain}
	of := make(map[*policy.Route]*way, len(routes))
	var errs []error
	for _, r := range routes {
		w := next[r.Connect]
		if w == nil {
			w = s.made[r.Connect]
		}
		if w == nil {
			var err error
			if w, err = newWay(s.config, r.Connect); err != nil {
				errs = append(errs, fmt.Errorf("route %q: %w", r.Name, err))
				continue
			}
		}
		next[r.Connect], of[r] = w, w
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.made = next
	return of, nil
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
		w.transport.CloseIdleConnections()
	}
}

func newWay(c UpstreamConfig, rule policy.ConnectRule) (*way, error) {
	config, err := clientTLS(c, rule)
	if err != nil {
		return nil, err
	}
	return &way{pool: newPool(c, rule, config), transport: newTransport(c, rule, config)}, nil
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

func newPool(c UpstreamConfig, rule policy.ConnectRule, config *tls.Config) *upstream.Pool {
	return upstream.New(upstream.Options{
		TLS: config, HTTP2: rule.HTTP == policy.HTTP2, H2C: rule.HTTP == policy.H2C,
		MaxIdlePerHost: c.MaxIdle, MaxConnsPerHost: c.MaxConns,
		MaxHeaderBytes: c.MaxHeaderBytes, IdleTimeout: c.IdleTimeout, DialTimeout: c.DialTimeout, TLSHandshakeTimeout: c.TLSTimeout,
	})
}

// newTransport is the transport for what is safe to send again. It changes
// nothing on the way: no compression of its own, no proxy picked up from the
// environment.
func newTransport(c UpstreamConfig, rule policy.ConnectRule, config *tls.Config) *http.Transport {
	d := &net.Dialer{Timeout: c.DialTimeout, KeepAlive: 30 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(rule.HTTP != policy.H2C)
	protocols.SetHTTP2(rule.HTTP == policy.HTTP2)
	protocols.SetUnencryptedHTTP2(rule.HTTP == policy.H2C)
	return &http.Transport{
		Proxy: nil, DialContext: d.DialContext, DisableCompression: true, Protocols: protocols,
		MaxIdleConns: 0, MaxIdleConnsPerHost: c.MaxIdle, IdleConnTimeout: c.IdleTimeout,
		TLSClientConfig: config, TLSHandshakeTimeout: c.TLSTimeout, MaxResponseHeaderBytes: c.MaxHeaderBytes,
		WriteBufferSize: bufferSize / 4, ReadBufferSize: bufferSize / 4,
	}
}

// loaded are rules with the ways that their routes need.
type loaded struct {
	Rules
	ways map[*policy.Route]*way
}

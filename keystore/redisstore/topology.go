package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// topology finds the server that a scope lives on. Everything goes through the
// clients of single nodes, whose re-runs are off for good; a cluster client is
// only asked for the way. What it redirects is sent again from here.
type topology interface {
	// node returns the primary that owns the scope.
	node(ctx context.Context, sc *scope) (*redis.Client, error)
	// each calls fn for every primary.
	each(ctx context.Context, fn func(context.Context, *redis.Client) error) error
	// reload says that what is known of the servers may be old.
	reload()
	// place names the server of a client, as greet was told.
	place(client *redis.Client) string
	Close() error
}

// connect makes the clients. It does not reach out. greet makes the hook for new
// connections to the server in a place.
func (o *Options) connect(a *address, greet func(place string) func(context.Context, *redis.Conn) error) topology {
	try := o.Timeout / 2
	tls := o.TLS
	if a.tls && tls == nil {
		tls = defaultTLS()
	}
	if !a.tls {
		tls = nil
	}
	const (
		// Flights of both lanes, lists and checks.
		pool   = 2*flights + 6
		buffer = 64 << 10
		// RESP2 and no identity: nothing is pushed, and a narrow ACL is enough.
		protocol = 2
	)
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch a.kind {
	case sentinel:
		return one{redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: a.master, SentinelAddrs: a.hosts, SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
			Username: a.user, Password: a.password, DB: a.db, TLSConfig: tls, Dialer: o.dial, Protocol: protocol,
			MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: try, ReadTimeout: try, WriteTimeout: try, PoolTimeout: try,
			DialerRetries: 1, PoolSize: pool, MaxActiveConns: pool, PipelinePoolSize: -1,
			ReadBufferSize: buffer, WriteBufferSize: buffer, DisableIdentity: true, OnConnect: greet(""),
		})}
	case cluster:
		return many{redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: a.hosts, Username: a.user, Password: a.password, TLSConfig: tls, Dialer: o.dial, Protocol: protocol,
			MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: try, ReadTimeout: try, WriteTimeout: try, PoolTimeout: try,
			DialerRetries: 1, PoolSize: pool, MaxActiveConns: pool, PipelinePoolSize: -1,
			ReadBufferSize: buffer, WriteBufferSize: buffer, DisableIdentity: true, MaintNotificationsConfig: quiet,
			NewClient: func(node *redis.Options) *redis.Client {
				node.OnConnect = greet(node.Addr)
				return redis.NewClient(node)
			},
		})}
	default:
		return one{redis.NewClient(&redis.Options{
			Addr: a.hosts[0], Username: a.user, Password: a.password, DB: a.db, TLSConfig: tls, Dialer: o.dial, Protocol: protocol,
			MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: try, ReadTimeout: try, WriteTimeout: try, PoolTimeout: try,
			DialerRetries: 1, PoolSize: pool, MaxActiveConns: pool, PipelinePoolSize: -1,
			ReadBufferSize: buffer, WriteBufferSize: buffer, DisableIdentity: true, MaintNotificationsConfig: quiet, OnConnect: greet(""),
		})}
	}
}

// one is a single primary, found by its address or by sentinels.
type one struct{ client *redis.Client }

func (t one) node(context.Context, *scope) (*redis.Client, error) { return t.client, nil }
func (t one) reload()                                             {}
func (t one) place(*redis.Client) string                          { return "" }
func (t one) Close() error                                        { return t.client.Close() }

func (t one) each(ctx context.Context, fn func(context.Context, *redis.Client) error) error {
	return fn(ctx, t.client)
}

// many is a cluster: the hash tag of a scope's keys says which primary owns it.
type many struct{ client *redis.ClusterClient }

func (t many) node(ctx context.Context, sc *scope) (*redis.Client, error) {
	return t.client.MasterForKey(ctx, sc.meta.(string))
}

func (t many) reload()                           { t.client.ReloadState(context.Background()) }
func (t many) place(client *redis.Client) string { return client.Options().Addr }
func (t many) Close() error                      { return t.client.Close() }

func (t many) each(ctx context.Context, fn func(context.Context, *redis.Client) error) error {
	return t.client.ForEachMaster(ctx, fn)
}

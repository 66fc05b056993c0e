package redisstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// kind is how the servers of a ledger hang together.
type kind uint8

const (
	single kind = iota
	sentinel
	cluster
)

// address is a parsed URL. It is never printed: it holds a password.
type address struct {
	kind     kind
	tls      bool
	user     string
	password string
	hosts    []string
	master   string
	db       int
}

var schemes = map[string]address{
	"redis":           {kind: single},
	"rediss":          {kind: single, tls: true},
	"redis+sentinel":  {kind: sentinel},
	"rediss+sentinel": {kind: sentinel, tls: true},
	"redis+cluster":   {kind: cluster},
	"rediss+cluster":  {kind: cluster, tls: true},
}

// parseURL reads o.URL and puts its query parameters into o. It does not use
// url.Parse, which knows no list of hosts and whose errors quote the password.
// None of its own errors quotes anything before the last @.
func parseURL(o *Options) (*address, error) {
	scheme, rest, ok := strings.Cut(o.URL, "://")
	a, known := schemes[scheme]
	if !ok || !known {
		return nil, errors.New("redisstore: the URL must begin with redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://")
	}
	// The last @ ends the credentials, so that a password with a raw / or ? in it
	// is taken whole instead of being shown as a host or a parameter.
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		if err := a.credentials(rest[:i]); err != nil {
			return nil, err
		}
		rest = rest[i+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")

	var errs []error
	for h := range strings.SplitSeq(hosts, ",") {
		host, port, err := net.SplitHostPort(h)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" {
			errs = append(errs, fmt.Errorf("redisstore: %q in the URL is not host:port", h))
			continue
		}
		a.hosts = append(a.hosts, h)
	}
	if a.kind == single && len(a.hosts) > 1 {
		errs = append(errs, errors.New("redisstore: several hosts need redis+sentinel:// or redis+cluster://"))
	}
	errs = append(errs, a.path(path), o.parameters(query))
	return &a, errors.Join(errs...)
}

func (a *address) credentials(s string) error {
	user, password, _ := strings.Cut(s, ":")
	var err, err2 error
	a.user, err = url.PathUnescape(user)
	a.password, err2 = url.PathUnescape(password)
	if err != nil || err2 != nil {
		return errors.New("redisstore: user or password in the URL is not percent-encoded as it should be")
	}
	return nil
}

// path reads what follows the hosts: a database, a master and a database, or
// nothing.
func (a *address) path(path string) error {
	if a.kind == sentinel {
		a.master, path, _ = strings.Cut(path, "/")
		if a.master == "" {
			return errors.New("redisstore: a sentinel URL names the master after the hosts: redis+sentinel://host:port/master/db")
		}
	}
	if path == "" {
		return nil
	}
	n, err := strconv.ParseUint(path, 10, 16)
	switch {
	case err != nil:
		return fmt.Errorf("redisstore: %q in the URL is not the number of a database", path)
	case a.kind == cluster && n != 0:
		return errors.New("redisstore: a cluster has no database but 0")
	}
	a.db = int(n)
	return nil
}

// parameters puts query parameters into the fields they stand for. Each may be
// given once, and not beside its field.
func (o *Options) parameters(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("redisstore: the URL's query is malformed")
	}
	var errs []error
	for name, v := range values {
		var err error
		set := false
		switch name {
		case "prefix":
			set, o.Prefix = o.Prefix != "", v[0]
		case "timeout":
			set = o.Timeout != 0
			o.Timeout, err = time.ParseDuration(v[0])
		case "replicas":
			set = o.Replicas != 0
			o.Replicas, err = strconv.Atoi(v[0])
		case "replica_timeout":
			set = o.ReplicaTimeout != 0
			o.ReplicaTimeout, err = time.ParseDuration(v[0])
		case "aof":
			set = o.AOF
			o.AOF, err = strconv.ParseBool(v[0])
		case "on_rollback":
			set = o.OnRollback != Refuse
			switch v[0] {
			case "refuse":
				o.OnRollback = Refuse
			case "warn":
				o.OnRollback = Warn
			default:
				err = errors.New("use refuse or warn")
			}
		default:
			errs = append(errs, fmt.Errorf("redisstore: the URL has no parameter %q; use prefix, timeout, replicas, replica_timeout, aof or on_rollback", name))
			continue
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("redisstore: %s=%q in the URL: %w", name, v[0], err))
		case set || len(v) > 1:
			errs = append(errs, fmt.Errorf("redisstore: %s is given more than once", name))
		}
	}
	return errors.Join(errs...)
}

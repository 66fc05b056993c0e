package redisstore

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"
)

func TestURLs(t *testing.T) {
	for url, want := range map[string]address{
		"redis://h:6379/0":                       {kind: single, hosts: []string{"h:6379"}},
		"redis://h:6379":                         {kind: single, hosts: []string{"h:6379"}},
		"redis://[::1]:6379/3":                   {kind: single, hosts: []string{"[::1]:6379"}, db: 3},
		"rediss://u:p%40ss%2F@h:1/2":             {kind: single, tls: true, user: "u", password: "p@ss/", hosts: []string{"h:1"}, db: 2},
		"redis://:p@h:1/0":                       {kind: single, password: "p", hosts: []string{"h:1"}},
		"redis://u:a/b?c@d@h:1/0":                {kind: single, user: "u", password: "a/b?c@d", hosts: []string{"h:1"}},
		"redis+sentinel://u:p@a:1,b:2/mymaster/": {kind: sentinel, user: "u", password: "p", hosts: []string{"a:1", "b:2"}, master: "mymaster"},
		"rediss+sentinel://a:1/m/4":              {kind: sentinel, tls: true, hosts: []string{"a:1"}, master: "m", db: 4},
		"redis+cluster://a:1,b:2,c:3":            {kind: cluster, hosts: []string{"a:1", "b:2", "c:3"}},
		"rediss+cluster://u:p@a:1,b:2/0":         {kind: cluster, tls: true, user: "u", password: "p", hosts: []string{"a:1", "b:2"}},
	} {
		o := Options{URL: url}
		a, err := o.complete()
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if strings.Join(a.hosts, ",") != strings.Join(want.hosts, ",") {
			t.Errorf("%s: hosts %v", url, a.hosts)
		}
		a.hosts, want.hosts = nil, nil
		if a.kind != want.kind || a.tls != want.tls || a.user != want.user || a.password != want.password || a.master != want.master || a.db != want.db {
			t.Errorf("%s: %+v, want %+v", url, *a, want)
		}
	}
}

func TestBadOptionsAreNamedWithoutThePassword(t *testing.T) {
	for url, part := range map[string]string{
		"http://u:hunter2@h:1":                                  "must begin with",
		"hunter2":                                               "must begin with",
		"redis://u:hunter2@h/0":                                 "host:port",
		"redis://u:hunter2@h:1,g:2/0":                           "several hosts",
		"redis://u:hunter2@h:1/zero":                            "database",
		"redis://u:hunter2%zz@h:1/0":                            "percent-encoded",
		"redis+sentinel://u:hunter2@h:1":                        "names the master",
		"redis+cluster://u:hunter2@h:1/3":                       "no database but 0",
		"redis://u:hunter2@h:1/0?max=3":                         `no parameter "max"`,
		"redis://u:hunter2@h:1/0?timeout=soon":                  "timeout",
		"redis://u:hunter2@h:1/0?timeout=1ms":                   "no call would end well",
		"redis://u:hunter2@h:1/0?on_rollback=x":                 "refuse or warn",
		"redis://u:hunter2@h:1/0?prefix={x}":                    "prefix",
		"redis://u:hunter2@h:1/0?aof=1&aof=0":                   "more than once",
		"redis://u:hunter2@h:1/0?replicas=-1":                   "replicas",
		"redis://u:hunter2@h:0/0?replica_timeout=2s&timeout=2s": "third of timeout",
	} {
		_, err := Open(context.Background(), Options{URL: url})
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := Open(context.Background(), Options{URL: "redis://h:1", TLS: &tls.Config{}}); err == nil {
		t.Error("TLS settings without TLS are accepted")
	}
	o := Options{URL: "redis://h:1?timeout=3s&replicas=2&replica_timeout=500ms&on_rollback=warn&prefix=p"}
	if _, err := o.complete(); err != nil || o.Timeout != 3*time.Second || o.Replicas != 2 || o.OnRollback != Warn || o.Prefix != "p" {
		t.Errorf("%+v %v", o, err)
	}
}

package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// server judges one primary's settings by INFO, which managed services leave
// open, and by CONFIG where it is. It reports whether the server answered.
func (s *Store) server(ctx context.Context, client *redis.Client, v, policies *verdicts) bool {
	addr := client.Options().Addr
	asked := time.Now()
	text, err := client.Info(ctx).Result()
	if errors.Is(err, errNoticed) {
		text, err = client.Info(ctx).Result()
	}
	if err != nil {
		var reply redis.Error
		if errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "NOPERM") {
			v.add(false, "INFO is not permitted on %s, so eviction, persistence and replicas cannot be checked: allow +info to the user of the ledger.", addr)
			return true
		}
		v.add(true, "%s does not answer: %v. Nothing can be sent until it does.", addr, err)
		return false
	}
	info := parseInfo(text)

	if version := info["redis_version"]; older(version, 6, 2) {
		v.add(true, "%s is Redis %s: the ledger needs 6.2 or later. Upgrade it.", addr, version)
	} else if s.opt.AOF && older(version, 7, 2) {
		v.add(true, "%s is Redis %s, which has no WAITAOF: the aof option needs 7.2 or later. Upgrade it or take the option away.", addr, version)
	}
	if p := info["maxmemory_policy"]; p != "" && p != "noeviction" {
		policies.add(true, "%s has maxmemory-policy %s: when it is full it throws records away, and a forgotten operation is sent again. Set maxmemory-policy noeviction.", addr, p)
	}
	if info["role"] != "master" {
		v.add(true, "%s is a %s and takes no writes: point the URL at the primary, or use redis+sentinel:// or redis+cluster://.", addr, cmp.Or(info["role"], "server of unknown role"))
	}
	if info["aof_last_write_status"] == "err" || info["aof_last_bgrewrite_status"] == "err" && info["aof_enabled"] == "1" {
		v.add(true, "%s cannot write its append-only file: what it acknowledges now may be lost. See its log and its disk.", addr)
	}
	fsync, known := s.config(ctx, client, "appendfsync")
	if why := s.sight(s.topo.place(client), info, fsync, asked); why != "" && !s.acknowledged(ctx) {
		s.raise(ctx, why, true)
	}
	switch {
	case info["aof_enabled"] == "1" && known && fsync != "always":
		v.add(false, "%s has appendfsync %s: a power cut of its machine forgets about the last second of acknowledged operations. Set appendfsync always.", addr, fsync)
	case info["aof_enabled"] == "1" && !known:
		v.add(false, "%s does not let appendfsync be read (CONFIG is blocked): unless it is always, a power cut of its machine forgets acknowledged operations.", addr)
	case info["aof_enabled"] == "0":
		save, known := s.config(ctx, client, "save")
		if known && save == "" {
			v.add(false, "%s has no persistence: a restart forgets every operation. Set appendonly yes and appendfsync always.", addr)
		} else {
			v.add(false, "%s has no append-only file: a restart or a crash forgets everything since its last snapshot. Set appendonly yes and appendfsync always.", addr)
		}
	}
	connected, _ := strconv.Atoi(info["connected_slaves"])
	if s.opt.Replicas > 0 && connected < s.opt.Replicas {
		v.add(true, "%s has %d replicas and %d must confirm before a send: no send can happen. Attach replicas, or ask for fewer.", addr, connected, s.opt.Replicas)
	}
	if s.opt.Replicas == 0 && connected > 0 {
		v.add(false, unconfirmed)
	}
	if s.opt.Replicas > 0 && connected >= s.opt.Replicas {
		if n, known := s.config(ctx, client, "min-replicas-to-write"); known && n == "0" {
			v.add(false, "%s has min-replicas-to-write 0: when cut off it goes on taking writes that a failover will drop. Sends are still safe, since replicas confirm them; set it to %d to stop the rest early.", addr, s.opt.Replicas)
		}
	}
	return true
}

// config reads one setting, where that is allowed.
func (s *Store) config(ctx context.Context, client *redis.Client, name string) (string, bool) {
	m, err := client.ConfigGet(ctx, name).Result()
	if err != nil {
		return "", false
	}
	value, ok := m[name]
	return value, ok
}

// knowsWaitAOF asks a server that can be reached whether it has WAITAOF. One that
// cannot be reached now is judged by Check.
func (s *Store) knowsWaitAOF(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	var mu sync.Mutex
	var fault error
	_ = s.topo.each(ctx, func(ctx context.Context, client *redis.Client) error {
		text, err := client.Info(ctx, "server").Result()
		if err != nil {
			return nil
		}
		if v := parseInfo(text)["redis_version"]; older(v, 7, 2) {
			mu.Lock()
			defer mu.Unlock()
			fault = fmt.Errorf("redisstore: the aof option needs Redis 7.2 or later for WAITAOF, and %s is %s: upgrade it, or take the option away and use replicas", client.Options().Addr, v)
		}
		return nil
	})
	return fault
}

// parseInfo reads the lines of INFO.
func parseInfo(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[k] = v
		}
	}
	return m
}

// older reports whether a version is below major.minor. One that cannot be read
// is not: it belongs to something that is not Redis and keeps its own count.
func older(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, err := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	if err != nil || err2 != nil {
		return false
	}
	return x < major || x == major && y < minor
}

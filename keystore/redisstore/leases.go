package redisstore

import (
	"context"
	"errors"
	"strconv"

	"fencepost/keystore"
)

// Lease implements [keystore.Store].
func (s *Store) Lease(ctx context.Context, scope, run string) (keystore.LeaseReply, error) {
	if err := s.enter(); err != nil {
		return keystore.LeaseReply{}, err
	}
	defer s.leave()
	sc, err := s.scope(scope)
	if err != nil {
		return keystore.LeaseReply{}, err
	}
	c := s.newCall(sc, leaseScript, sc.leases+run)
	c.with(c, &s.instance)
	c.read, c.size = true, 256
	rep, err := s.run(ctx, c)
	if err != nil {
		return keystore.LeaseReply{}, err
	}
	return leased(c, scope, run, rep)
}

// SwapLease implements [keystore.Store].
func (s *Store) SwapLease(ctx context.Context, w keystore.LeaseWrite) (keystore.LeaseReply, error) {
	if err := s.enter(); err != nil {
		return keystore.LeaseReply{}, err
	}
	defer s.leave()
	l := &w.Lease
	sc, err := s.scope(l.Scope)
	if err != nil {
		return keystore.LeaseReply{}, err
	}
	if err := s.register(ctx, sc); err != nil {
		return keystore.LeaseReply{}, err
	}
	c := s.newCall(sc, swapLeaseScript, sc.leases+l.Run)
	c.prev, c.version = strconv.FormatUint(l.Version-1, 10), strconv.FormatUint(l.Version, 10)
	c.writer, c.key, c.token = l.Writer, l.Owner, padded(l.Token)
	acquired, live := "now", any("any")
	if l.AcquiredAt != keystore.StampNow {
		acquired = strconv.FormatInt(int64(l.AcquiredAt), 10)
	}
	if w.MustBeLive {
		live = "live"
	}
	c.with(c, &s.instance, &c.prev, &c.version, &c.writer, &c.key, &c.token, acquired, w.TTL.Milliseconds(), live)
	c.size = 512
	rep, err := s.run(ctx, c)
	if err != nil {
		return keystore.LeaseReply{}, err
	}
	return leased(c, l.Scope, l.Run, rep)
}

// leased maps what lease.lua and swaplease.lua returned.
func leased(c *call, scope, run string, rep reply) (keystore.LeaseReply, error) {
	out := keystore.LeaseReply{Result: results[rep.code], Now: rep.now}
	if len(rep.rest) == 0 && out.Result != keystore.NoResult {
		return out, nil
	}
	malformed := failed(c.script.name, errors.New("the lease of run "+strconv.Quote(run)+" lacks fields: something else wrote its key"), !rep.wrote)
	if len(rep.rest) < 6 || out.Result == keystore.NoResult {
		return keystore.LeaseReply{}, malformed
	}
	var text [6]string
	for i := range text {
		t, ok := rep.rest[i].(string)
		if !ok {
			return keystore.LeaseReply{}, malformed
		}
		text[i] = t
	}
	l := keystore.Lease{Scope: scope, Run: run, Owner: text[0], Writer: text[5]}
	var errs [4]error
	l.Token, errs[0] = strconv.ParseUint(text[1], 10, 64)
	l.AcquiredAt, errs[1] = instant(text[2])
	l.ExpiresAt, errs[2] = instant(text[3])
	l.Version, errs[3] = strconv.ParseUint(text[4], 10, 64)
	if errors.Join(errs[:]...) != nil {
		return keystore.LeaseReply{}, malformed
	}
	out.Lease = l
	return out, nil
}

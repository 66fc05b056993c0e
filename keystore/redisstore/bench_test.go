package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"fencepost/keystore"
)

// carriers are the ways to the server that were measured against each other.
var carriers = map[string]func(*Store){
	"flights": func(*Store) {},
	"plain": func(s *Store) {
		s.send = func(client *redis.Client, c *call) {
			c.place.Store(taken)
			s.trips.Add(1)
			_ = client.Process(context.Background(), c)
			c.done <- struct{}{}
		}
	},
	"autopipeline": func(s *Store) {
		client := s.topo.(one).client
		ap, err := client.AutoPipeline()
		if err != nil {
			panic(err)
		}
		s.send = func(client *redis.Client, c *call) {
			c.place.Store(taken)
			_ = ap.Process(context.Background(), c)
			c.done <- struct{}{}
		}
	},
}

func BenchmarkStore(b *testing.B) {
	srv := startServer(b)
	for _, carrier := range []string{"flights", "plain", "autopipeline"} {
		for _, callers := range []int{1, 16, 64} {
			for _, load := range []string{"flow", "replay"} {
				b.Run(fmt.Sprintf("%s/%s/%d", load, carrier, callers), func(b *testing.B) {
					s := open(b, srv.url(), func(o *Options) { o.Prefix = unique("bench") })
					carriers[carrier](s)
					body := strings.Repeat("x", 200)
					complete(b, s, "a", "done", body)
					replay := reserveWrite("a", "done")
					c := context.Background()
					var n atomic.Int64
					var wg sync.WaitGroup
					before := s.trips.Load()
					b.ReportAllocs()
					b.ResetTimer()
					for range callers {
						wg.Go(func() {
							for n.Add(1) <= int64(b.N) {
								if load == "replay" {
									if r, err := s.Insert(c, replay); err != nil || r.Result != keystore.Exists {
										panic(fmt.Sprint(r, err))
									}
									continue
								}
								r, err := s.Insert(c, reserveWrite("a", unique("k")))
								if err == nil {
									r, err = s.Swap(c, markWrite(r.Record))
								}
								if err == nil {
									r, err = s.Swap(c, completeWrite(r.Record, body))
								}
								if err != nil || r.Result != keystore.Written {
									panic(fmt.Sprint(r, err))
								}
							}
						})
					}
					wg.Wait()
					b.StopTimer()
					calls := b.N
					if load == "flow" {
						calls *= 3
					}
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
					b.ReportMetric(float64(s.trips.Load()-before)/float64(calls), "trips/call")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

package postgres

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/bench/ratio"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

var benchRenewals = flag.Int("bench-renewals", 500_000, "renewals of BenchmarkBloat")

// fleet is processes with a Locker and connections of their own. It counts their statements by what they are for.
type fleet struct {
	at      string
	clients []*holdfast.Client

	mu   sync.Mutex
	kind map[string]string // of a statement
	sent map[string]int    // by kind
}

// TraceQueryStart implements [pgx.QueryTracer].
func (f *fleet) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent[cmp.Or(f.kind[q.SQL], "other")]++
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (f *fleet) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// since are the statements since then, and all.
func (f *fleet) since(then map[string]int) (sent map[string]int, all float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent = maps.Clone(f.sent)
	for kind := range sent {
		sent[kind] -= then[kind]
		all += float64(sent[kind])
	}
	return sent, all
}

func newFleet(b *testing.B, at string, count int) *fleet {
	b.Helper()
	f := &fleet{at: at, kind: map[string]string{}, sent: map[string]int{}}
	pool, err := pgxpool.ParseConfig(at)
	if err != nil {
		b.Fatal(err)
	}
	pool.ConnConfig.Tracer = f
	for range count {
		locker, err := newWith(b.Context(), pool.Copy(), []Option{WithLogger(discard)})
		if err != nil {
			b.Fatal(err)
		}
		f.mu.Lock()
		s := locker.sql
		for sql, kind := range map[string]string{s.acquire: "acquire", s.join: "join", s.write: "write", s.leave: "leave", s.release: "release",
			s.inspect: "inspect", s.inspectBatch: "read", s.waitingOn: "waiting-on", notifySQL: "notify"} {
			f.kind[sql] = kind
		}
		f.mu.Unlock()
		client, err := holdfast.New(locker, holdfast.WithLogger(discard))
		if err != nil {
			b.Fatal(err)
		}
		f.clients = append(f.clients, client)
	}
	return f
}

// end ends the waits that ctx limits, and the clients.
func (f *fleet) end(wg *sync.WaitGroup) {
	wg.Wait()
	for _, c := range f.clients {
		wg.Go(func() { _ = c.Shutdown(context.Background()) })
	}
	wg.Wait()
}

func bigServer(b *testing.B) string {
	b.Helper()
	return postgrestest.Start(b, postgrestest.Options{Settings: map[string]string{"max_connections": "1000"}}).Database(b)
}

// BenchmarkQueue hands one lock over among processes that wait for it again and again. It counts their statements, in all and by
// what they are for, and compares the time from a release to the next grant with that of an acquire and a release that nobody waits for.
func BenchmarkQueue(b *testing.B) {
	for _, count := range []int{2, 10, 200} {
		b.Run(fmt.Sprintf("processes=%d", count), func(b *testing.B) {
			at := bigServer(b)
			for b.Loop() {
				newFleet(b, at, count).handOver(b, max(500, 3*count))
			}
		})
	}
}

func (f *fleet) handOver(b *testing.B, handOvers int) {
	b.Helper()
	var mu sync.Mutex
	var released time.Time
	var grants int
	var gaps, pairs bench.Samples
	ctx, cancel := context.WithCancel(b.Context())
	warm, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range f.clients {
		wg.Go(func() {
			for {
				h, err := c.Lock(ctx, "job")
				if err != nil {
					return
				}
				mu.Lock()
				grants++
				switch counted := grants - 2*len(f.clients); {
				case counted == 0: // all wait in the queue
					close(warm)
				case counted > 0 && counted <= handOvers:
					gaps.Add(time.Since(released))
					if counted == handOvers {
						close(done)
					}
				}
				released = time.Now()
				mu.Unlock()
				if err := h.Release(context.WithoutCancel(ctx)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	<-warm
	before, _ := f.since(nil)
	began := time.Now()
	<-done
	took := time.Since(began)
	sent, all := f.since(before)
	cancel()
	f.end(&wg)
	alone := open(b, f.at)
	for i := range 500 {
		began := time.Now()
		if err := alone.Release(b.Context(), acquire(b, alone, request(fmt.Sprint("alone-", i%50), fmt.Sprint(i)))); err != nil {
			b.Fatal(err)
		}
		pairs.Add(time.Since(began))
	}
	pair := pairs.Quantile(0.5)
	b.ReportMetric(0, "ns/op")
	for kind, n := range sent {
		b.ReportMetric(float64(n)/float64(handOvers), kind+"/handoff")
	}
	b.ReportMetric(all/float64(handOvers), "statements/handoff")
	b.ReportMetric(float64(took)/float64(handOvers)/float64(pair), "time/acquire+release")
	b.ReportMetric(float64(gaps.Quantile(0.5))/float64(pair), "p50/acquire+release")
	b.ReportMetric(float64(gaps.Quantile(0.99))/float64(pair), "p99/acquire+release")
	b.ReportMetric(float64(pair)/1e6, "pair-ms")
}

// BenchmarkNotify takes the hand-over apart: the time from a notification for one session until it arrives, and until an acquire
// and a release after that have been answered, where other sessions listen to channels of their own. The server wakes all sessions
// of a database that listen, whatever their channels.
func BenchmarkNotify(b *testing.B) {
	for _, count := range []int{1, 10, 50, 200} {
		b.Run(fmt.Sprintf("listening=%d", count), func(b *testing.B) {
			at := bigServer(b)
			sender, l, i := client(b, at), open(b, at), 0
			listening := make([]*pgx.Conn, count)
			for n := range listening {
				listening[n] = client(b, at)
				run(b, listening[n], fmt.Sprintf("LISTEN channel_%d", n))
			}
			var alone, arrived, answered bench.Samples
			pair := func() {
				i++
				if err := l.Release(b.Context(), acquire(b, l, request(fmt.Sprint("job-", i%50), fmt.Sprint(i)))); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				for range 400 {
					began := time.Now()
					pair()
					alone.Add(time.Since(began))
					began = time.Now()
					run(b, sender, notifySQL, []string{"channel_0"}, []string{fmt.Sprint(i)})
					if _, err := listening[0].WaitForNotification(b.Context()); err != nil {
						b.Fatal(err)
					}
					arrived.Add(time.Since(began))
					pair()
					answered.Add(time.Since(began))
					time.Sleep(20 * time.Millisecond) // all have read it
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(alone.Quantile(0.5))/1e6, "pair-ms")
			b.ReportMetric(float64(arrived.Quantile(0.5))/1e6, "arrived-ms")
			b.ReportMetric(float64(answered.Quantile(0.5))/1e6, "answered-ms")
		})
	}
}

// BenchmarkFollowers compares the commits of an application, beside processes that wait for a lock, with those that it
// makes alone before and after.
func BenchmarkFollowers(b *testing.B) {
	const period = 4 * time.Second
	for _, count := range []int{100, 300} {
		b.Run(fmt.Sprintf("followers=%d", count), func(b *testing.B) {
			at := bigServer(b)
			acquire(b, open(b, at), driver.Request{Name: "job", ID: driver.NewLeaseID("holder"), TTL: time.Hour})
			app := client(b, at)
			run(b, app, `CREATE TABLE app (n bigserial PRIMARY KEY, line text)`)
			commits := func(d time.Duration) (n float64) {
				for end := time.Now().Add(d); time.Now().Before(end); n++ {
					if _, err := app.Exec(b.Context(), `INSERT INTO app (line) VALUES ('an order')`); err != nil {
						b.Fatal(err)
					}
				}
				return n
			}
			var ratios []float64
			for b.Loop() {
				commits(time.Second)
				alone := commits(period)
				f := newFleet(b, at, count)
				ctx, cancel := context.WithCancel(b.Context())
				var wg sync.WaitGroup
				for _, c := range f.clients {
					wg.Go(func() { _, _ = c.Lock(ctx, "job") })
				}
				watch := client(b, at)
				postgrestest.WaitFor(b, "all wait", func() bool {
					return scan[int](b, watch, `SELECT coalesce(jsonb_array_length(queue), 0) FROM holdfast_locks WHERE name = 'job'`) == count
				})
				commits(3 * time.Second) // their listeners are open
				before, _ := f.since(nil)
				beside := commits(period) + commits(period)
				_, sent := f.since(before)
				cancel()
				f.end(&wg)
				commits(time.Second)
				b.ReportMetric(0, "ns/op")
				ratios = append(ratios, beside/(alone+commits(period)))
				median, low, high := ratio.Median(ratios)
				b.ReportMetric(median, "of-its-commits")
				b.ReportMetric(low, "low")
				b.ReportMetric(high, "high")
				b.ReportMetric(sent/(2*period).Seconds(), "statements/s")
			}
		})
	}
}

// BenchmarkTakeover measures, by the server's clock, how long after the end of an abandoned lease a waiter is granted the lock.
func BenchmarkTakeover(b *testing.B) {
	const names, rounds = 10, 30
	at := postgrestest.URL(b)
	dead, watch := open(b, at), client(b, at)
	f := newFleet(b, at, 5)
	var late bench.Samples
	for b.Loop() {
		for round := range rounds {
			var wg sync.WaitGroup
			for n := range names {
				name := fmt.Sprintf("job-%d-%d", round, n)
				acquire(b, dead, driver.Request{Name: name, ID: driver.NewLeaseID(name), TTL: time.Second})
				wg.Go(func() {
					h, err := f.clients[n%len(f.clients)].Lock(b.Context(), name)
					if err != nil {
						b.Error(err)
						return
					}
					_ = h.Release(b.Context())
				})
			}
			wg.Wait()
		}
		for _, ms := range scan[[]float64](b, watch, `
			SELECT array_agg(extract(epoch FROM acquired_at - (history->0->>'until')::timestamptz)::float8 * 1000)
			FROM holdfast_locks WHERE name LIKE 'job-%'`) {
			late.Add(time.Duration(ms * float64(time.Millisecond)))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(late.Quantile(0.5))/1e6, "p50-ms")
	b.ReportMetric(float64(late.Quantile(0.99))/1e6, "p99-ms")
	b.ReportMetric(float64(late.Quantile(1))/1e6, "max-ms")
	var wg sync.WaitGroup
	f.end(&wg)
}

// BenchmarkBloat renews a thousand leases in batches again and again, with autovacuum as it comes, and compares the size of
// the table and its indexes after a tenth and after half of the renewals with that at the end.
func BenchmarkBloat(b *testing.B) {
	at := bigServer(b) // its own: other tests would end a shared one
	l, watch := open(b, at), client(b, at)
	leases := make([]driver.Lease, 1000)
	for i := range leases {
		leases[i] = acquire(b, l, request(fmt.Sprint("lease-", i), fmt.Sprint(i)))
	}
	size := func() float64 {
		return float64(scan[int64](b, watch, `SELECT pg_total_relation_size('holdfast_locks')`)) / 1024
	}
	for b.Loop() {
		first, began := size(), time.Now()
		rounds := *benchRenewals / len(leases)
		at := map[int]string{rounds / 10: "after-a-tenth-KiB", rounds / 2: "after-half-KiB", rounds: "at-the-end-KiB"}
		for done := 1; done <= rounds; done++ {
			var wg sync.WaitGroup
			for half := range slices.Chunk(leases, batchSize) {
				wg.Go(func() {
					if _, errs := l.RenewBatch(b.Context(), half); errs[0] != nil {
						b.Error(errs[0])
					}
				})
			}
			wg.Wait()
			if b.Failed() {
				return
			}
			if when := at[done]; when != "" {
				b.ReportMetric(size(), when)
			}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(*benchRenewals)/time.Since(began).Seconds(), "renewals/s")
		b.ReportMetric(first, "first-KiB")
		time.Sleep(2 * time.Second) // the statistics arrive
		b.ReportMetric(scan[float64](b, watch, `
			SELECT n_tup_hot_upd::float8 / n_tup_upd FROM pg_stat_user_tables WHERE relname = 'holdfast_locks'`), "HOT-share")
	}
}

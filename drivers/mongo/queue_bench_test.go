package mongo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// BenchmarkQueue hands one lock over among Lockers that wait for it again and again, each with a
// client of its own, as processes have. It counts their commands, and compares the time of a
// handoff with that of an acquire and a release that nobody waits for, in the same run. A round is
// the number of handoffs from one grant of a process to its next one, as a share of the processes:
// 1 if they are served in turn.
func BenchmarkQueue(b *testing.B) {
	for _, count := range []int{2, 10, 50, 200} {
		b.Run(fmt.Sprintf("processes=%d", count), func(b *testing.B) {
			q := newQueueBench(b, count)
			b.ReportMetric(0, "ns/op")
			for b.Loop() {
				q.run(b, max(300, 3*count))
			}
		})
	}
}

type queueBench struct {
	counter *commandCounter
	alone   *Locker
	clients []*holdfast.Client
}

func newQueueBench(b *testing.B, count int) *queueBench {
	b.Helper()
	q := &queueBench{counter: newCommandCounter()}
	base := mongotest.Collection(b)
	locker := func() *Locker {
		client := mongotest.Connect(b, mongotest.URI(b), options.Client().SetMonitor(q.counter.monitor()))
		l, err := New(b.Context(), through(client, base), WithLogger(discard))
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	q.alone = locker()
	for range count {
		client, err := holdfast.New(locker(), holdfast.WithLogger(discard))
		if err != nil {
			b.Fatal(err)
		}
		q.clients = append(q.clients, client)
	}
	b.Cleanup(func() {
		var wg sync.WaitGroup
		for _, c := range q.clients {
			wg.Go(func() { _ = c.Shutdown(context.Background()) })
		}
		wg.Wait()
		_ = q.alone.Close(context.Background())
	})
	return q
}

// run measures this many handoffs.
func (q *queueBench) run(b *testing.B, handOvers int) {
	b.Helper()
	var mu sync.Mutex
	var order []int
	var released time.Time
	var gaps, pairs []time.Duration
	stop := make(chan struct{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i, c := range q.clients {
		wg.Go(func() {
			for {
				h, err := c.Lock(ctx, "job")
				if err != nil {
					return
				}
				mu.Lock()
				if !released.IsZero() {
					gaps = append(gaps, time.Since(released))
				}
				order = append(order, i)
				if len(order) == handOvers+len(q.clients) {
					close(stop)
				}
				released = time.Now()
				mu.Unlock()
				if err := h.Release(context.Background()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for { // until all wait in the queue
		mu.Lock()
		n := len(order)
		mu.Unlock()
		if n >= len(q.clients) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	q.counter.reset()
	mu.Lock()
	first := len(order)
	mu.Unlock()
	begin := time.Now()
	<-stop
	took := time.Since(begin)
	commands := q.counter.all()
	mu.Lock()
	n := len(order) - first
	last := map[int]int{}
	var rounds []int
	for at, who := range order[first:] {
		if before, ok := last[who]; ok {
			rounds = append(rounds, at-before)
		}
		last[who] = at
	}
	some := slices.Clone(gaps[first:])
	mu.Unlock()
	cancel()
	wg.Wait()
	for i := range 200 {
		start := time.Now()
		lease, err := q.alone.TryAcquire(b.Context(), driver.Request{Name: fmt.Sprint("alone-", i), ID: driver.NewLeaseID(benchID(i)),
			TTL: 30 * time.Second})
		if err != nil {
			b.Fatal(err)
		}
		if err := q.alone.Release(b.Context(), lease); err != nil {
			b.Fatal(err)
		}
		pairs = append(pairs, time.Since(start))
	}
	slices.Sort(pairs)
	slices.Sort(some)
	slices.Sort(rounds)
	pair := pairs[len(pairs)/2]
	for name, count := range commands {
		b.ReportMetric(float64(count)/float64(n), name+"/handoff")
	}
	b.ReportMetric(float64(took)/float64(n)/float64(pair), "time/acquire+release")
	b.ReportMetric(float64(some[len(some)/2])/float64(pair), "p50/acquire+release")
	b.ReportMetric(float64(some[len(some)*99/100])/float64(pair), "p99/acquire+release")
	b.ReportMetric(float64(rounds[0])/float64(len(q.clients)), "shortest-round")
	b.ReportMetric(float64(rounds[len(rounds)-1])/float64(len(q.clients)), "longest-round")
	b.ReportMetric(float64(pair)/1e6, "pair-ms")
}

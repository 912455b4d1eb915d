package mysql

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/mysqltest"
)

// BenchmarkCalls compares an acquire with its release, and a renewal, with as many bare statements that compare and set.
func BenchmarkCalls(b *testing.B) {
	at := mysqltest.URL(b)
	l := openAt(b, at)
	bare := pool(b, at)
	run(b, bare, fmt.Sprint("INSERT INTO ", tableOf(l), " VALUES ('~bare', 0, 0, '0')"))
	b.Run("bare statement", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := bare.ExecContext(b.Context(), fmt.Sprintf("UPDATE %s SET value = '%d' WHERE name = '~bare' AND value IS NOT NULL",
				tableOf(l), i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("acquire and release", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			lease, err := l.TryAcquire(b.Context(), request("n", fmt.Sprint(i)))
			if err == nil {
				err = l.Release(b.Context(), lease)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("renew", func(b *testing.B) {
		lease, err := l.TryAcquire(b.Context(), request("renewed", "a"))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if lease, err = l.Renew(b.Context(), lease); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHandover has a lock go through so many waiters, each a process of its own as far as the server sees, and counts the requests.
func BenchmarkHandover(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			for b.Loop() {
				handOver(b, n)
			}
		})
	}
}

func handOver(b *testing.B, n int) {
	b.Helper()
	var sent atomic.Int64
	at, count := mysqltest.URL(b), func(c *config) { c.sent = func() { sent.Add(1) } }
	openAt(b, at)
	open := func() *holdfast.Client {
		l, err := Open(b.Context(), at, count, unprobed)
		if err != nil {
			b.Fatal(err)
		}
		l.store.db.SetMaxOpenConns(2)
		client, err := holdfast.New(l)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = client.Shutdown(context.WithoutCancel(b.Context())) })
		return client
	}
	first := open()
	hold, err := first.Lock(b.Context(), "n")
	if err != nil {
		b.Fatal(err)
	}
	var waiters sync.WaitGroup
	var last time.Time
	var mu sync.Mutex
	for range n {
		client := open()
		waiters.Go(func() {
			hold, err := client.Lock(b.Context(), "n")
			if err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			last = time.Now()
			mu.Unlock()
			if err := hold.Release(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
	time.Sleep(2 * time.Second) // until all wait
	before, began := sent.Load(), time.Now()
	if err := hold.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	waiters.Wait()
	b.ReportMetric(float64(sent.Load()-before)/float64(n), "requests/handoff")
	b.ReportMetric(last.Sub(began).Seconds()*1000/float64(n), "ms/handoff")
}

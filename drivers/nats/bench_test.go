package nats

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/natstest"
)

// BenchmarkCalls compares an acquire with its release, and a renewal, with as many bare conditional writes, on the same connection.
func BenchmarkCalls(b *testing.B) {
	l, err := Open(b.Context(), natstest.Start(b).URL()+"/locks")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(b.Context())) }()
	b.Run("bare write", func(b *testing.B) {
		var last uint64
		for b.Loop() {
			if last, err = l.store.publish(b.Context(), "bare", []byte("b"), last); err != nil {
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
	at, count := natstest.Start(b).URL()+"/locks", func(c *settings) { c.sent = func() { sent.Add(1) } }
	makes, err := Open(b.Context(), at)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = makes.Close(context.WithoutCancel(b.Context())) }()
	open := func() *holdfast.Client {
		l, err := Open(b.Context(), at, count, onlyReads)
		if err != nil {
			b.Fatal(err)
		}
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
	time.Sleep(2 * time.Second) // until all wait, and are woken
	before, began := sent.Load(), time.Now()
	if err := hold.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	waiters.Wait()
	b.ReportMetric(float64(sent.Load()-before)/float64(n), "requests/handoff")
	b.ReportMetric(last.Sub(began).Seconds()*1000/float64(n), "ms/handoff")
}

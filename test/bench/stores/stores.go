// Package stores has the benchmarks that drivers over package cas share: what a call costs beside a bare write of the store, and what
// it costs to hand a lock over. They are to be run with -benchtime 1x.
package stores

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/bench/ratio"
)

// pairs gives an interval of a few percent on a busy machine.
const pairs = 1000

// Put is a bare write by a driver's own client of the store.
func Put(ctx context.Context, store cas.Store) func(i int) error {
	version := ""
	return func(i int) error {
		w, err := store.Put(ctx, "bare", fmt.Append(nil, i), version)
		version = w.Version
		return err
	}
}

// Calls compares an acquire with its release, and a renewal, with a bare write that compares and sets.
func Calls(b *testing.B, l driver.Locker, bare func(i int) error) {
	b.Helper()
	ctx := b.Context()
	request := func(name string, i int) driver.Request {
		return driver.Request{Name: name, ID: driver.NewLeaseID(fmt.Sprint(i)), Owner: "host/1234", TTL: time.Minute}
	}
	b.Run("acquire and release", func(b *testing.B) {
		for b.Loop() {
			ratio.Run(b, pairs, bare, func(i int) error {
				lease, err := l.TryAcquire(ctx, request("n", i))
				if err != nil {
					return err
				}
				return l.Release(ctx, lease)
			}).Report(b)
		}
	})
	b.Run("renew", func(b *testing.B) {
		held, err := l.TryAcquire(ctx, request("renewed", 0))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			ratio.Run(b, pairs, bare, func(int) (err error) { held, err = l.Renew(ctx, held); return err }).Report(b)
		}
	})
}

// Handover has a lock go through 1, 10 and 100 waiters, each a process of its own as far as the store sees, and counts their requests.
// open opens a Locker that writes nothing by itself, always at one place of the store; sent is called for each request.
func Handover[L driver.Locker](b *testing.B, open func(sent func()) (L, error)) {
	b.Helper()
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			var changes, requests int64
			var took time.Duration
			for b.Loop() {
				sent, lasted := handOver(b, n, open)
				changes, requests, took = changes+int64(n), requests+sent, took+lasted
			}
			b.ReportMetric(float64(requests)/float64(changes), "requests/handoff")
			b.ReportMetric(took.Seconds()*1000/float64(changes), "ms/handoff")
			b.ReportMetric(0, "ns/op") // most of it is the wait for the waiters
		})
	}
}

// handOver returns the requests from the first release to the last, and the time to the last grant.
func handOver[L driver.Locker](b *testing.B, n int, open func(sent func()) (L, error)) (requests int64, took time.Duration) {
	b.Helper()
	ctx := b.Context()
	var sent atomic.Int64
	client := func() *holdfast.Client {
		l, err := open(func() { sent.Add(1) })
		if err != nil {
			b.Fatal(err)
		}
		c, err := holdfast.New(l, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Shutdown(context.WithoutCancel(ctx)) })
		return c
	}
	hold, err := client().Lock(ctx, "n")
	if err != nil {
		b.Fatal(err)
	}
	var waiters sync.WaitGroup
	var last time.Time
	var mu sync.Mutex
	for range n {
		c := client()
		waiters.Go(func() {
			hold, err := c.Lock(ctx, "n")
			if err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			last = time.Now()
			mu.Unlock()
			if err := hold.Release(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	time.Sleep(2 * time.Second) // until all wait, and are woken
	before, began := sent.Load(), time.Now()
	if err := hold.Release(ctx); err != nil {
		b.Fatal(err)
	}
	waiters.Wait()
	return sent.Load() - before, last.Sub(began)
}

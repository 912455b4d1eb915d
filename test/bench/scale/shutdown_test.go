//go:build unix

package scale

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// oneByOne is a Locker that does not release in batches.
type oneByOne struct{ driver.Locker }

func (l oneByOne) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.BatchReleaser = nil
	return c
}

// BenchmarkShutdown measures how long a Shutdown of many holds takes, with batches of releases and with
// releases one by one, which is the base of the ratio.
func BenchmarkShutdown(b *testing.B) {
	lockers := map[string]func() (driver.Locker, error){
		"memory": func() (driver.Locker, error) { return memory.New(), nil },
		"mongodb": func() (driver.Locker, error) {
			return mongo.New(b.Context(), mongotest.Collection(b), mongo.WithLogger(slog.New(slog.DiscardHandler)))
		},
	}
	for backend, open := range lockers {
		for _, n := range []int{1000, 5000} {
			b.Run(fmt.Sprintf("%s/%d", backend, n), func(b *testing.B) {
				var batches, single time.Duration
				for b.Loop() {
					batches += shutdownTime(b, n, open, func(l driver.Locker) driver.Locker { return l })
					single += shutdownTime(b, n, open, func(l driver.Locker) driver.Locker { return oneByOne{l} })
				}
				b.ReportMetric(float64(batches.Microseconds())/1000/float64(b.N), "batches-ms")
				b.ReportMetric(float64(single.Microseconds())/1000/float64(b.N), "single-ms")
				b.ReportMetric(batches.Seconds()/single.Seconds(), "ratio")
			})
		}
	}
}

func shutdownTime(b *testing.B, n int, open func() (driver.Locker, error), wrap func(driver.Locker) driver.Locker) time.Duration {
	b.Helper()
	l, err := open()
	if err != nil {
		b.Fatal(err)
	}
	c, err := holdfast.New(wrap(l), holdfast.WithTTL(10*time.Minute), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.Fatal(err)
	}
	const atOnce = 64
	var wg sync.WaitGroup
	for first := range atOnce {
		wg.Go(func() {
			for i := first; i < n; i += atOnce {
				if _, err := c.TryLock(b.Context(), fmt.Sprint("n-", i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	start := time.Now()
	if err := c.Shutdown(context.Background()); err != nil {
		b.Error(err)
	}
	return time.Since(start)
}

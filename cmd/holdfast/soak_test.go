package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// An outage, however long, is no fault of the locks: holds are lost, and clients wait.
func TestSoakOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		locker := driver.Intercept(memory.NewStore().Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			if at := time.Since(begun); at > 10*time.Second && at < 5*time.Minute {
				return driver.Answer{Err: errors.New("connection refused")}
			}
			return next(ctx, call)
		})
		s := newSoak()
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
		defer cancel()
		var clients sync.WaitGroup
		for range soakClients {
			client := locktest.NewClient(t, locker)
			clients.Go(func() { s.work(ctx, client) })
		}
		clients.Wait()
		if len(s.Problems) > 0 || s.Holds < 100 {
			t.Errorf("%d holds, %d lost, problems: %q", s.Holds, s.Losses, s.Problems)
		}
		t.Logf("%d holds, %d lost", s.Holds, s.Losses)
	})
}

// Nor is a suspend of the machine: the next client is granted the lock before the context of the one before it can end.
func TestSoakSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		begun := time.Now()
		elapsed := func() time.Duration { return time.Since(begun) + time.Duration(suspended.Load()) }
		store := memory.NewStore(memory.WithClock(func() time.Time { return begun.Add(elapsed()) }))
		s := newSoak()
		take := func(length time.Duration) {
			client := locktest.NewClient(t, store.Locker(), holdfast.WithElapsed(elapsed))
			_ = client.Do(t.Context(), "soak-0", func(ctx context.Context) error {
				s.hold(ctx, "soak-0", length)
				return nil
			}, holdfast.WithTTL(soakTTL))
		}
		go take(time.Minute)
		synctest.Wait()
		suspended.Store(int64(time.Minute))
		take(0)
		if len(s.Problems) > 0 || s.Holds != 2 {
			t.Errorf("%d holds, problems: %q", s.Holds, s.Problems)
		}
	})
}

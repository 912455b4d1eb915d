package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

package engine_test

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A caller that waits says so once after a second, and when the holder has changed.
func TestWaitingIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, second := locktest.NewClient(t, store.Locker()), locktest.NewClient(t, store.Locker())
		h := locktest.MustLock(t, first, "job", holdfast.WithOwner("web-1"))
		next := make(chan *holdfast.Hold, 1)
		go func() { next <- locktest.MustLock(t, second, "job", holdfast.WithOwner("web-2")) }()
		synctest.Wait()
		out, logger := logOf(slog.LevelInfo)
		c := locktest.NewClient(t, store.Locker(), logger)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = c.Lock(ctx, "job") }()
		time.Sleep(999 * time.Millisecond)
		if log := out.Take(); log != "" {
			t.Errorf("logged before a second is over:\n%s", log)
		}
		time.Sleep(10 * time.Minute)
		log := out.Take()
		if strings.Count(log, "\n") != 1 {
			t.Errorf("want one line:\n%s", log)
		}
		wantLogged(t, log, `level=INFO msg="holdfast: waiting for a lock that another holds" lock=job owner=web-1 token=`, " waited=1s")
		_ = h.Release(t.Context())
		<-next
		time.Sleep(time.Minute)
		log = out.Take()
		if strings.Count(log, "\n") != 1 {
			t.Errorf("want one line after the change:\n%s", log)
		}
		wantLogged(t, log, "owner=web-2")
		cancel()
	})
}

// Holders that change all the time are logged now and then.
func TestWaitingForManyHoldersIsLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		out, logger := logOf(slog.LevelInfo)
		for range 5 {
			c := locktest.NewClient(t, store.Locker())
			go func() {
				for t.Context().Err() == nil {
					_ = c.Do(t.Context(), "job", func(context.Context) error { time.Sleep(700 * time.Millisecond); return nil })
				}
			}()
		}
		c := locktest.NewClient(t, store.Locker(), logger)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for ctx.Err() == nil {
			_ = c.Do(ctx, "job", func(context.Context) error { return nil })
		}
		if n := strings.Count(out.Take(), "\n"); n < 3 || n > 12 {
			t.Errorf("%d lines in five minutes", n)
		}
	})
}

// A standby says that it campaigns, both with Run and with RunTaskOnLeader.
func TestStandbyIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job", holdfast.WithOwner("web-1"))
		for name, campaign := range map[string]func(context.Context, *holdfast.LeaderAwareRunner){
			"Run": func(ctx context.Context, r *holdfast.LeaderAwareRunner) { _ = r.Run(ctx, locktest.EmptyTask) },
			"RunTaskOnLeader": func(ctx context.Context, r *holdfast.LeaderAwareRunner) {
				for ctx.Err() == nil {
					_, _ = r.RunTaskOnLeader(ctx, locktest.EmptyTask)
					time.Sleep(3 * time.Second)
				}
			},
		} {
			out, logger := logOf(slog.LevelInfo)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			campaign(ctx, locktest.NewRunner(t, locktest.NewClient(t, store.Locker(), logger)))
			log := out.Take()
			if strings.Count(log, "\n") != 1 {
				t.Errorf("%s: want one line:\n%s", name, log)
			}
			wantLogged(t, log, `msg="holdfast: campaigning, another instance leads" lock=job owner=web-1`)
			cancel()
		}
	})
}

// A manager whose names all fail logs a few lines, not some for each name.
func TestManyNamesDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, logger := logOf(slog.LevelInfo)
		f := locktest.NewFaulty(t, memory.New(), locktest.Refuse(locktest.OpAcquire))
		c := locktest.NewClient(t, f, logger)
		locktest.MustAdd(t, locktest.NewManager(t, c), locktest.Names("p", 100)...)
		time.Sleep(20 * time.Second)
		log := out.Take()
		if n := strings.Count(log, "\n"); n < 1 || n > 100 {
			t.Errorf("%d lines in 20 s, such as %s", n, log[:min(len(log), 300)])
		}
		wantLogged(t, log, " times=", " in=", " others=true")
	})
}

// A failure that lasts is logged at growing distances, with its count.
func TestLastingFailureIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, logger := logOf(slog.LevelInfo)
		f := locktest.NewFaulty(t, memory.New(), locktest.Refuse(locktest.OpAcquire))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, _ = locktest.NewClient(t, f, logger, holdfast.WithPollInterval(100*time.Millisecond)).Lock(ctx, "job") // limits the backoff
		log := out.Take()
		if n := strings.Count(log, "\n"); n < 8 || n > 16 {
			t.Errorf("%d lines in ten minutes", n)
		}
		for _, count := range []string{` in=2(\.\d)?s\b`, ` in=2m\d`} { // by the first failure after that time
			if !regexp.MustCompile(count).MatchString(log) {
				t.Errorf("nothing matches %q:\n%s", count, log)
			}
		}
	})
}

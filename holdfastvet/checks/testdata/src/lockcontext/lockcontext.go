package lockcontext

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/cronlock"
	"github.com/holdfast-go/holdfast/adapters/gocronlock"
	"github.com/holdfast-go/holdfast/partitions"
)

var (
	client *holdfast.Client
	runner *holdfast.LeaderAwareRunner
	db     *sql.DB
)

func work(ctx context.Context) error           { return nil }
func notify(ctx context.Context, err error)    {}
func step() error                              { return nil }
func consume(ctx context.Context, n int) error { return nil }

func ignored(ctx context.Context) {
	_ = client.Do(ctx, "a", func(context.Context) error { // want `the function given to Client.Do ignores its context, which ends when the lock is lost: it passes ctx to work`
		return work(ctx)
	})
	_ = client.TryDo(ctx, "a", func(_ context.Context) error { return work(context.Background()) }) // want `Client.TryDo ignores its context, .*: it passes context.Background\(\) to work`
	_ = runner.Run(ctx, func(leading context.Context) error {                                       // want `the task ignores its context, .*: it loops without end`
		for {
			_ = step()
			time.Sleep(time.Second)
		}
	})
	_, _ = runner.RunTaskOnLeader(ctx, func(context.Context) error { // want `the task ignores its context, .*: use ExecContext instead of db.Exec`
		_, err := db.Exec("DELETE FROM old")
		return err
	})
	_ = client.Do(ctx, "a", func(context.Context) error { // want `use NewRequestWithContext instead of http.Get`
		_, err := http.Get("http://localhost/")
		return err
	})
	_ = client.Do(ctx, "a", func(context.Context) error { // want `it passes ctx to context.WithTimeout`
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return work(ctx)
	})
	task := func(context.Context) error { return work(ctx) }
	_ = client.Do(ctx, "a", task)                                                    // want `it passes ctx to work`
	_ = client.Do(ctx, "a", named)                                                   // want `it passes context.TODO\(\) to work`
	_, _ = partitions.New(client, "feed", 16, func(_ context.Context, n int) error { // want `the function of Partitions ignores its context`
		return consume(ctx, n)
	})
}

func named(context.Context) error { return work(context.TODO()) }

func adapters(ctx context.Context, jobs *cronlock.Jobs, locker *gocronlock.Locker[gocronlock.Lock], elector *gocronlock.Elector) {
	_, _ = jobs.Func("a", func(context.Context) { _ = work(ctx) })                          // want `the job ignores its context`
	_ = locker.Task("a", func(context.Context) error { return work(ctx) })                  // want `the task ignores its context`
	_ = elector.Task(func(held context.Context) error { _ = work(held); return work(ctx) }) // want `the task passes on ctx of the function around it`
}

func outer(ctx context.Context) {
	_ = client.Do(ctx, "a", func(held context.Context) error {
		if err := work(held); err != nil {
			return err
		}
		return work(ctx) // want `the function given to Client.Do passes on ctx of the function around it: .*; pass on held, or use context.WithoutCancel`
	})
	_ = client.Do(ctx, "a", func(held context.Context) error {
		deadline, cancel := context.WithTimeout(ctx, time.Minute) // want `passes on ctx`
		defer cancel()
		_ = work(held)
		return work(deadline)
	})
	_ = client.Do(ctx, "a", func(first context.Context) error {
		return client.Do(first, "b", func(second context.Context) error {
			_ = work(second)
			return work(first) // want `passes on first of the function around it`
		})
	})
}

func unwatched(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a") // want `the loss of hold is never noticed: work gets the context that bounded the waiting; derive its context from hold.Context\(\)`
	if err != nil {
		return err
	}
	defer hold.Release(ctx)
	return work(ctx)
}

type service struct{ client *holdfast.Client }

func (s *service) run(ctx context.Context) error { return s.client.Do(ctx, "a", s.task) }

func (s *service) deaf(ctx context.Context) error {
	return s.client.Do(ctx, "a", s.deafTask) // want `ignores its context`
}

func (s *service) task(ctx context.Context) error { return work(ctx) }

func (s *service) deafTask(context.Context) error { return work(context.Background()) }

// All of this is right.
func right(ctx context.Context) error {
	n := 0
	_ = client.Do(ctx, "a", func(context.Context) error { n++; return step() }) // nothing that could use the context
	_ = client.Do(ctx, "a", work)
	_ = client.Do(ctx, "a", func(ctx context.Context) error { return work(ctx) })
	_ = client.Do(ctx, "a", func(context.Context) error {
		for { // ends by itself
			if err := step(); err != nil {
				return err
			}
		}
	})
	_ = client.Do(ctx, "a", func(held context.Context) error {
		ctx, cancel := context.WithTimeout(held, time.Minute)
		defer cancel()
		return work(ctx)
	})
	_ = client.Do(ctx, "a", func(held context.Context) (err error) {
		defer func() { _ = work(ctx) }() // cleanup
		go work(ctx)                     // not part of the work
		slog.InfoContext(ctx, "begins")
		if err := work(held); err != nil {
			notify(ctx, err) // the context may have ended
			return err
		}
		if held.Err() != nil {
			return work(ctx)
		}
		select {
		case <-held.Done():
			return work(ctx)
		default:
		}
		return work(context.WithoutCancel(ctx))
	})
	_ = client.Do(ctx, "a", func(held context.Context) error {
		return client.Do(held, "b", func(ctx context.Context) error { return work(ctx) })
	})
	_ = client.Do(ctx, "a", func(context.Context) error { return work(ctx) }) //nolint:lockcontext // as an example
	_ = client.Do(ctx, "a", func(held context.Context) error {
		ctx = held
		return work(ctx)
	})
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	defer hold.Release(ctx)
	return work(hold.Context())
}

// The hold is asked between the steps.
func asked(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	defer hold.Release(ctx)
	if err := work(ctx); err != nil {
		return errors.Join(err, hold.Err())
	}
	return nil
}

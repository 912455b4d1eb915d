// Asynq runs the scheduler of github.com/hibiken/asynq on one of many instances. An asynq scheduler
// puts periodic tasks into a queue in Redis; two of them would put in every task twice. The
// workers, which take tasks out of the queue, run on every instance.
//
// Start it in two terminals, beside a Redis server: one instance enqueues, both work. When you
// stop the one that enqueues, or kill it, the other continues.
//
//	cd examples/libraries/asynq && go run . -every 2s
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

// taskType is the type of the periodic task.
const taskType = "report"

func main() {
	backend := flag.String("backend", "file:"+filepath.ToSlash(filepath.Join(os.TempDir(), "holdfast-examples")),
		"URL of the storage for the lock")
	redis := flag.String("redis", "127.0.0.1:6379", "address of the Redis server")
	every := flag.Duration("every", time.Minute, "period of the task, whole seconds")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *backend, *redis, *every); err != nil {
		log.Fatal(err)
	}
}

// run works, and schedules while this instance leads, until ctx ends.
func run(ctx context.Context, out io.Writer, backend, redis string, every time.Duration, opts ...holdfast.ClientOption) (err error) {
	client, err := holdfast.Open(ctx, backend, opts...)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx))
	}()

	server := asynq.NewServer(asynq.RedisClientOpt{Addr: redis}, asynq.Config{Concurrency: 2, LogLevel: asynq.ErrorLevel})
	if err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		fmt.Fprintf(out, "%d works on %s\n", os.Getpid(), task.Type())
		return nil
	})); err != nil {
		return err
	}
	defer server.Shutdown()

	runner, err := holdfast.NewLeaderAwareRunner(client, "example-asynq")
	if err != nil {
		return err
	}
	err = runner.Run(ctx, func(ctx context.Context) error { return schedule(ctx, out, redis, every) })
	if errors.Is(err, context.Canceled) {
		return nil // the service is stopped
	}
	return err
}

// schedule enqueues a task in every period until ctx ends. A scheduler cannot be started again,
// so each leadership has a new one.
func schedule(ctx context.Context, out io.Writer, redis string, every time.Duration) error {
	token, _ := holdfast.TokenFromContext(ctx)
	scheduler := asynq.NewScheduler(asynq.RedisClientOpt{Addr: redis, DialTimeout: time.Second, ReadTimeout: time.Second,
		WriteTimeout: time.Second},
		&asynq.SchedulerOpts{
			LogLevel: asynq.ErrorLevel,
			PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
				// The error after a takeover may be asynq.ErrDuplicateTask: see below.
				fmt.Fprintf(out, "%d enqueued under token %d: %v\n", os.Getpid(), token, err)
			},
		})
	// Unique guards the moment between two leaders: a task that the first enqueued is refused
	// from the second as long as it waits in the queue and its period lasts. An instance that
	// was paused for longer than its lease can enqueue one task late.
	_, err := scheduler.Register("@every "+every.String(), asynq.NewTask(taskType, nil), asynq.Unique(every))
	if err != nil {
		return err
	}
	if err := scheduler.Start(); err != nil {
		return err
	}
	// Shutdown waits for a task that is being enqueued. Only then the lock is released, so the
	// next leader begins after it. The time limits of Redis above are shorter than the grace.
	defer scheduler.Shutdown()
	<-ctx.Done()
	return context.Cause(ctx)
}

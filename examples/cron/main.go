// Cron runs a job periodically on one of many machines: each of them runs this
// program with the same schedule, and one of them does the job each time.
//
// Start it in two terminals: one works, the other says that it does not. End the one
// that works, and the other goes on.
//
//	go run ./examples/cron -every 2s
//
// For a job that the system's cron starts, there is no need of a program. The crontab of
// every machine has, in one line:
//
//	0 3 * * *  holdfast run --backend azblob://myaccount/locks --try --min-hold 1m report -- ./report.sh
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

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

func main() {
	backend := flag.String("backend", "file:"+filepath.ToSlash(filepath.Join(os.TempDir(), "holdfast-examples")), "where the lock is kept")
	every := flag.Duration("every", time.Minute, "period of the job")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := schedule(ctx, os.Stdout, *backend, *every); err != nil {
		log.Fatal(err)
	}
}

// schedule offers to do the job at every full period, until ctx ends.
func schedule(ctx context.Context, out io.Writer, backend string, every time.Duration) (err error) {
	client, err := holdfast.Open(ctx, backend)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx))
	}()
	runner, err := holdfast.NewLeaderAwareRunner(client, "example-cron",
		// Whoever did the job stays leader until after the next period, so that a
		// machine whose clock is late does not do it again...
		holdfast.WithIdleLimit(every+every/2),
		// ... and for at least this long after it became leader.
		holdfast.WithMinHold(every/2),
	)
	if err != nil {
		return err
	}
	for {
		next := time.Now().Truncate(every).Add(every)
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return nil
		}
		ran, err := runner.RunTaskOnLeader(ctx, func(ctx context.Context) error {
			return report(ctx, out, next)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil: // the next period is another chance
			fmt.Fprintf(out, "%s: ran: %t, error: %v\n", next.Format(time.TimeOnly), ran, err)
		case !ran:
			fmt.Fprintf(out, "%s: not here\n", next.Format(time.TimeOnly))
		}
	}
}

// report is the job. It stops when ctx ends: then another may be about to do it.
func report(ctx context.Context, out io.Writer, at time.Time) error {
	token, _ := holdfast.TokenFromContext(ctx)
	_, err := fmt.Fprintf(out, "%s: the job, under token %d\n", at.Format(time.TimeOnly), token)
	return err
}

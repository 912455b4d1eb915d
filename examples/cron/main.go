// Cron runs a job periodically on one of many machines. Every machine runs this program with
// the same schedule; each time one of them runs the job.
//
// Start it in two terminals: one runs the job, the other skips it. When you stop the one that
// runs the job, the other continues.
//
//	go run ./examples/cron -every 2s
//
// A job that the system's cron starts needs no such program. Put this line into the crontab
// of every machine:
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
	backend := flag.String("backend", "file:"+filepath.ToSlash(filepath.Join(os.TempDir(), "holdfast-examples")),
		"URL of the storage for the lock")
	every := flag.Duration("every", time.Minute, "period of the job")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := schedule(ctx, os.Stdout, *backend, *every); err != nil {
		log.Fatal(err)
	}
}

// schedule runs the job at every full period if this machine leads, until ctx ends.
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
		// The leader stays leader until after the next period, so that a machine whose
		// clock is late does not run the job again.
		holdfast.WithIdleLimit(every+every/2),
		// It also stays leader for at least this long.
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
		case err != nil: // the job runs again in the next period
			fmt.Fprintf(out, "%s: ran: %t, error: %v\n", next.Format(time.TimeOnly), ran, err)
		case !ran:
			fmt.Fprintf(out, "%s: skipped, another machine leads\n", next.Format(time.TimeOnly))
		}
	}
}

// report is the job. It must stop when ctx ends, because another machine may run it then.
func report(ctx context.Context, out io.Writer, at time.Time) error {
	token, _ := holdfast.TokenFromContext(ctx)
	_, err := fmt.Fprintf(out, "%s: the job ran under token %d\n", at.Format(time.TimeOnly), token)
	return err
}

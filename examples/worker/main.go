// Worker is a service of which many copies run and one works.
//
// Start it twice, in two terminals, and end the one that leads, with Ctrl-C or with
// kill -9: the other takes over, at once or after the TTL.
//
//	go run ./examples/worker
//	go run ./examples/worker -backend 'mongodb://127.0.0.1:27017/app?replicaSet=rs0'
//	go run ./examples/worker -backend azblob://emulator/locks
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
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

func main() {
	backend := flag.String("backend", "file:"+filepath.ToSlash(filepath.Join(os.TempDir(), "holdfast-examples")), "where the lock is kept")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := work(ctx, os.Stdout, *backend, time.Second); err != nil {
		log.Fatal(err)
	}
}

// work takes part in the election until ctx ends, and then hands over.
func work(ctx context.Context, out io.Writer, backend string, every time.Duration) (err error) {
	client, err := holdfast.Open(ctx, backend, holdfast.WithTTL(15*time.Second))
	if err != nil {
		return err
	}
	defer func() {
		// Whoever comes next waits for this, not for the TTL.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx))
	}()

	runner, err := holdfast.NewLeaderAwareRunner(client, "example-worker",
		// An error of the task does not end the service: it campaigns again.
		holdfast.WithRestart(holdfast.Backoff{Initial: time.Second, Max: time.Minute}),
		// A task that hangs must not lead for ever.
		holdfast.WithStallTimeout(time.Minute),
		holdfast.WithObserver(func(e holdfast.Event) { fmt.Fprintln(out, e) }),
	)
	if err != nil {
		return err
	}
	err = runner.Run(ctx, func(ctx context.Context) error {
		token, _ := holdfast.TokenFromContext(ctx) // for whatever the lock protects
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for n := 1; ; n++ {
			select {
			case <-ticker.C:
				holdfast.Heartbeat(ctx)
				fmt.Fprintf(out, "step %d under token %d\n", n, token)
			case <-ctx.Done(): // lost, stepped down, or told to stop: no more work
				return context.Cause(ctx)
			}
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil // told to stop
	}
	return err
}

// Worker is a service that runs in many copies, of which one leads and works.
//
// Start it in two terminals. If you stop the leader with Ctrl-C, the other copy takes over
// at once; after kill -9 it takes over when the TTL has passed.
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
	_ "github.com/holdfast-go/holdfast/drivers/etcd"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

func main() {
	backend := flag.String("backend", "file:"+filepath.ToSlash(filepath.Join(os.TempDir(), "holdfast-examples")),
		"URL of the storage for the lock")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := work(ctx, os.Stdout, *backend, time.Second); err != nil {
		log.Fatal(err)
	}
}

// work takes part in the election until ctx ends. If it leads then, it hands over.
func work(ctx context.Context, out io.Writer, backend string, every time.Duration) (err error) {
	client, err := holdfast.Open(ctx, backend, holdfast.WithTTL(15*time.Second))
	if err != nil {
		return err
	}
	defer func() {
		// After this release the next leader does not have to wait for the TTL.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx))
	}()

	runner, err := holdfast.NewLeaderAwareRunner(client, "example-worker",
		// After an error of the task the service campaigns again.
		holdfast.WithRestart(holdfast.Backoff{Initial: time.Second, Max: time.Minute}),
		// A task that hangs must not lead forever.
		holdfast.WithStallTimeout(time.Minute),
		holdfast.WithObserver(func(e holdfast.Event) { fmt.Fprintln(out, e) }),
	)
	if err != nil {
		return err
	}
	err = runner.Run(ctx, func(ctx context.Context) error {
		token, _ := holdfast.TokenFromContext(ctx) // pass it to the resource that the lock protects
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for n := 1; ; n++ {
			select {
			case <-ticker.C:
				holdfast.Heartbeat(ctx)
				fmt.Fprintf(out, "step %d under token %d\n", n, token)
			case <-ctx.Done(): // leadership lost or given up, or the service is stopped: do no more work
				return context.Cause(ctx)
			}
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil // the service is stopped
	}
	return err
}

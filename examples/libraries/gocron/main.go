// Gocron is a service that runs in many copies with the same gocron schedule. Each run of a job
// happens on one of them.
//
// Start it in two terminals, and stop or kill one of them:
//
//	cd examples/libraries/gocron
//	go run .
//	go run . -backend 'mongodb://127.0.0.1:27017/app?replicaSet=rs0'
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

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/gocronlock"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

func main() {
	backend := flag.String("backend", "file:"+filepath.ToSlash(filepath.Join(os.TempDir(), "holdfast-examples")),
		"URL of the storage for the locks")
	every := flag.Duration("every", 10*time.Second, "period of the job")
	ttl := flag.Duration("ttl", 15*time.Second, "how long the others wait for a copy that has died during the job")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := schedule(ctx, os.Stdout, *backend, *every, *ttl); err != nil {
		log.Fatal(err)
	}
}

// schedule runs the scheduler until ctx ends.
func schedule(ctx context.Context, out io.Writer, backend string, every, ttl time.Duration) (err error) {
	client, err := holdfast.Open(ctx, backend, holdfast.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx))
	}()
	// The minimum hold is nearly a period: the copies were started at different times, and in
	// each period the first that asks runs the job.
	locker, err := gocronlock.NewLocker[gocron.Lock](client, every*9/10)
	if err != nil {
		return err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	// The scheduler stops before the client: a deferred call that comes later runs first.
	defer func() { err = errors.Join(err, scheduler.Shutdown()) }()
	_, err = scheduler.NewJob(gocron.DurationJob(every),
		gocron.NewTask(locker.Task("report", func(ctx context.Context) error { return report(ctx, out) })),
		gocron.WithName("report"), // the name of the lock, as in Task
		gocron.WithStartAt(gocron.WithStartImmediately()))
	if err != nil {
		return err
	}
	scheduler.Start()
	fmt.Fprintf(out, "scheduled by %s\n", instance())
	<-ctx.Done()
	return nil
}

// report is the job. Its context ends if the lock is lost.
func report(ctx context.Context, out io.Writer) error {
	token, _ := holdfast.TokenFromContext(ctx) // for storage that refuses late writes
	_, err := fmt.Fprintf(out, "%s the report was made by %s under token %d\n", time.Now().Format(time.TimeOnly), instance(), token)
	return err
}

// instance names this copy.
func instance() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// Operator makes the actual state of a fleet what its desired state says, as a Kubernetes operator
// does, without Kubernetes: desired and actual state are documents of MongoDB. Of its copies one
// reconciles.
//
// Start it in two terminals, and change the desired state in a third:
//
//	go run ./examples/operator -uri 'mongodb://127.0.0.1:27017/?replicaSet=rs0' -listen 127.0.0.1:8081
//	go run ./examples/operator -uri 'mongodb://127.0.0.1:27017/?replicaSet=rs0' -listen 127.0.0.1:8082
//	go run ./examples/operator -uri 'mongodb://127.0.0.1:27017/?replicaSet=rs0' -set web=3
//	curl -i http://127.0.0.1:8081/readyz # 200 on the leader, 503 on the other
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/readiness"
)

func main() {
	uri := flag.String("uri", "mongodb://127.0.0.1:27017/?replicaSet=rs0", "connection string of MongoDB")
	listen := flag.String("listen", "127.0.0.1:0", "address of the readiness probe")
	ttl := flag.Duration("ttl", 15*time.Second, "how long the others wait for a leader that has died")
	every := flag.Duration("every", time.Second, "period of the reconcile loop")
	set := flag.String("set", "", "NAME=COPIES: change the desired state, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *set != "" {
		err = setDesired(ctx, *uri, *set)
	} else {
		err = operate(ctx, os.Stdout, *uri, *listen, *ttl, *every)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// operate takes part until ctx ends.
func operate(ctx context.Context, out io.Writer, uri, listen string, ttl, every time.Duration) (err error) {
	db, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withTimeLimit(db.Disconnect)) }()
	state := db.Database(database)
	locker, err := holdmongo.New(ctx, state.Collection(holdmongo.DefaultCollection))
	if err != nil {
		return err
	}
	client, err := holdfast.New(locker, holdfast.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withTimeLimit(client.Shutdown)) }()

	r := &reconciler{out: out, desired: state.Collection("desired"), actual: state.Collection("actual")}
	runner, err := holdfast.NewLeaderAwareRunner(client, "operator",
		// After an error another copy may succeed; this one campaigns again.
		holdfast.WithRestart(holdfast.Backoff{Initial: time.Second, Max: time.Minute}),
		// A loop that hangs must not lead forever.
		holdfast.WithStallTimeout(time.Minute),
		// A copy that cannot read the state must not lead.
		holdfast.WithHealthCheck(10*time.Second, func(ctx context.Context) error { return db.Ping(ctx, nil) }),
		holdfast.WithObserver(func(e holdfast.Event) { fmt.Fprintln(out, e) }))
	if err != nil {
		return err
	}
	stop, err := serve(ctx, out, listen, runner)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withTimeLimit(stop)) }()

	err = runner.Run(ctx, func(ctx context.Context) error {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			if err := r.reconcile(ctx); err != nil {
				return err
			}
			holdfast.Heartbeat(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	if ctx.Err() != nil {
		return nil // the operator was stopped
	}
	return err
}

// serve serves the readiness probe.
func serve(ctx context.Context, out io.Writer, listen string, runner *holdfast.LeaderAwareRunner) (stop func(context.Context) error,
	err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/readyz", readiness.Handler(runner))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(out, "readiness probe:", err)
		}
	}()
	fmt.Fprintf(out, "readiness probe on http://%s/readyz\n", listener.Addr())
	return server.Shutdown, nil
}

// withTimeLimit calls a cleanup function with a time limit of its own, since ctx may have ended.
func withTimeLimit(cleanup func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return cleanup(ctx)
}

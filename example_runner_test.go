package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
)

// A service of which one instance leads. The instance campaigns until it is asked to stop, and
// releases the lock then.
func ExampleNewLeaderAwareRunner() {
	client, err := holdfast.Open(context.Background(), "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	runner, err := holdfast.NewLeaderAwareRunner(client, "billing",
		holdfast.WithStallTimeout(time.Minute),
		holdfast.WithRestart(holdfast.Backoff{Initial: time.Second, Max: time.Minute}))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // signal.NotifyContext(…, SIGTERM)
	err = runner.Run(ctx, func(ctx context.Context) error {
		for i := range 1000 {
			if ctx.Err() != nil { // leadership lost, or asked to stop
				return context.Cause(ctx)
			}
			holdfast.Heartbeat(ctx) // this task is alive
			if fmt.Println("step", i, "as leader:", runner.IsLeader()); i == 2 {
				stop() // as when SIGTERM arrives
			}
		}
		return nil
	})
	fmt.Println("ended:", errors.Is(err, context.Canceled))
	fmt.Println("leader:", runner.IsLeader())
	if err := client.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// step 0 as leader: true
	// step 1 as leader: true
	// step 2 as leader: true
	// ended: true
	// leader: false
}

// A periodic job: every instance calls RunTaskOnLeader, and the leader runs the job.
func ExampleLeaderAwareRunner_RunTaskOnLeader() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	instance := func(owner string) *holdfast.LeaderAwareRunner {
		r, err := holdfast.NewLeaderAwareRunner(client, "report", holdfast.WithOwner(owner))
		if err != nil {
			log.Fatal(err)
		}
		return r
	}
	a, b := instance("a"), instance("b") // two instances of a service
	job := func(context.Context) error { fmt.Println("the job"); return nil }
	for range 2 { // in a service: every few seconds, on each instance
		ran, err := a.RunTaskOnLeader(ctx, job)
		fmt.Println("on a:", ran, err)
		ran, err = b.RunTaskOnLeader(ctx, job)
		fmt.Println("on b:", ran, err)
	}
	if err := client.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the job
	// on a: true <nil>
	// on b: false <nil>
	// the job
	// on a: true <nil>
	// on b: false <nil>
}

// StepDown gives leadership up, for example before maintenance of this instance.
func ExampleLeaderAwareRunner_StepDown() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	runner, err := holdfast.NewLeaderAwareRunner(client, "billing", holdfast.WithCoolDown(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	job := func(context.Context) error { return nil }
	ran, err := runner.RunTaskOnLeader(ctx, job)
	fmt.Println(ran, err)
	if err := runner.StepDown(ctx); err != nil {
		log.Fatal(err)
	}
	record, err := runner.Leader(ctx)
	fmt.Println(record.State, err)
	ran, err = runner.RunTaskOnLeader(ctx, job) // others go first
	fmt.Println(ran, err)
	if err := client.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true <nil>
	// free <nil>
	// false <nil>
}

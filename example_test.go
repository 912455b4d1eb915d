package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/memory" // registers "mem:"
)

func ExampleOpen() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:", holdfast.WithTTL(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	_, err = holdfast.Open(ctx, "mem:", holdfast.WithGrace(time.Hour))
	fmt.Println(err)
	// Output: holdfast: Grace 1h is invalid: must be less than the TTL of 30s
}

func ExampleClient_Do() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	err = client.Do(ctx, "billing", func(ctx context.Context) error {
		token, _ := holdfast.TokenFromContext(ctx)
		fmt.Println("billing under a fencing token:", token > 0)
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// billing under a fencing token: true
	// done: <nil>
}

func ExampleClient_Lock() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	wait, cancel := context.WithTimeout(ctx, time.Minute) // bounds the waiting only
	hold, err := client.Lock(wait, "migration")
	cancel()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", hold.Err() == nil)
	fmt.Println("released:", hold.Release(ctx) == nil)
	fmt.Println("why the context ended:", context.Cause(hold.Context()))
	// Output:
	// held: true
	// released: true
	// why the context ended: holdfast: lock released
}

func ExampleClient_DoAll() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	// A transfer: nobody else may change one of the two accounts, and one in the other direction must not deadlock.
	balance := map[string]int{"account/1": 100, "account/2": 0}
	err = client.DoAll(ctx, []string{"account/2", "account/1"}, func(ctx context.Context) error {
		hold, _ := holdfast.MultiHoldFromContext(ctx)
		fmt.Println("held:", hold.Names())
		balance["account/1"] -= 30
		balance["account/2"] += 30
		return nil
	})
	fmt.Println(balance, err)
	// Output:
	// held: [account/1 account/2]
	// map[account/1:70 account/2:30] <nil>
}

func ExampleClient_TryLock() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:", holdfast.WithOwner("web-3"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	hold, err := client.TryLock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.TryLock(ctx, "report")
	var held *holdfast.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Record.Owner)
	}
	_ = hold.Release(ctx)
	// Output: held by web-3
}

// At most three holders convert pictures at a time.
func ExampleWithSlots() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:", holdfast.WithSlots(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Shutdown(ctx) }()

	slots := map[int]bool{}
	for range 3 {
		hold, err := client.Lock(ctx, "convert")
		if err != nil {
			fmt.Println(err)
			return
		}
		slots[hold.Slot()] = true
	}
	fmt.Println("different slots:", len(slots))

	_, err = client.TryLock(ctx, "convert")
	fmt.Println("a fourth is refused:", errors.Is(err, holdfast.ErrHeld))
	// Output:
	// different slots: 3
	// a fourth is refused: true
}

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

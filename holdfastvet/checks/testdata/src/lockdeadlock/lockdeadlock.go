package lockdeadlock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/partitions"
)

const job = "billing"

func work(ctx context.Context) error { return nil }

func shutdown(ctx context.Context, client, other *holdfast.Client, locker holdfast.Locker) {
	_ = client.Do(ctx, "a", func(ctx context.Context) error {
		return client.Shutdown(context.Background()) // want `Shutdown waits for the function given to Client.Do, which calls it: call it on another goroutine`
	})
	_ = client.TryDo(ctx, "a", func(ctx context.Context) error {
		defer func() { _ = client.Shutdown(ctx) }() // want `Shutdown waits for the function given to Client.TryDo`
		return other.Shutdown(ctx)
	})
	_, _ = client.Lock(ctx, "a", holdfast.WithOverrunHook(func(holdfast.Event) { _ = client.Shutdown(ctx) })) // want `Shutdown waits for an overrun hook`
	runner, err := holdfast.NewLeaderAwareRunner(client, "a",
		holdfast.WithHealthCheck(time.Second, func(ctx context.Context) error { return client.Shutdown(ctx) })) // want `Shutdown waits for a health check`
	if err != nil {
		return
	}
	_ = runner.Run(ctx, func(context.Context) error { return client.Shutdown(context.Background()) })             // want `Shutdown waits for the task`
	_, _ = partitions.New(client, "a", 4, func(ctx context.Context, n int) error { return client.Shutdown(ctx) }) // want `Shutdown waits for the function of Partitions`
	_, _ = leases.New(client, holdfast.WithObserver(func(holdfast.Event) { _ = client.Shutdown(ctx) }))           // want `Shutdown waits for an observer`

	var late *holdfast.Client
	late, err = holdfast.New(locker, holdfast.WithObserver(func(holdfast.Event) {
		_ = late.Shutdown(context.Background()) // want `Shutdown waits for an observer`
	}))

	// Right:
	_ = runner.Run(ctx, func(ctx context.Context) error {
		go client.Shutdown(context.Background())
		go func() { _ = client.Shutdown(context.Background()) }()
		stop := func() { _ = client.Shutdown(ctx) } // nobody calls it here
		_ = stop
		return other.Shutdown(ctx)
	})
	_ = client.Shutdown(ctx)
	_ = late.Shutdown(ctx)
}

type service struct {
	client, other *holdfast.Client
}

func (s *service) run(ctx, stop context.Context) error {
	_ = s.other.Do(ctx, "a", s.task)
	return s.client.Do(ctx, "a", s.task)
}

func (s *service) task(ctx context.Context) error {
	return s.client.Shutdown(ctx) // want `Shutdown waits for the function given to Client.Do`
}

func first(services []*service) error {
	return services[0].client.Do(context.Background(), "a", func(ctx context.Context) error {
		return services[1].client.Shutdown(ctx)
	})
}

func runners(ctx context.Context, client *holdfast.Client) {
	runner, _ := holdfast.NewLeaderAwareRunner(client, "a")
	other, _ := holdfast.NewLeaderAwareRunner(client, "b")
	_ = runner.Run(ctx, func(leading context.Context) error {
		_ = runner.Close(ctx)                     // want `Close waits for the task, which calls it with another context than its own: pass the task's context`
		_ = runner.StepDown(context.Background()) // want `StepDown waits for the task`
		_ = runner.Run(leading, work)             // want `Run in the runner's own task returns an error at once`
		// Right:
		_ = runner.StepDown(leading)
		short, cancel := context.WithTimeout(leading, time.Second)
		defer cancel()
		_ = runner.Close(short)
		_ = other.Close(ctx)
		return other.Run(leading, work)
	})
}

func again(ctx context.Context, client, other *holdfast.Client, name string) error {
	_ = client.Do(ctx, "billing", func(ctx context.Context) error {
		return client.Do(ctx, job, work) // want `Do never gets the lock job, which the function given to Client.Do holds itself`
	})
	return client.Do(ctx, job, func(ctx context.Context) error {
		_, err := client.TryLock(ctx, "billing") // want `TryLock never gets the lock "billing"`
		// Right, or not known:
		_ = client.Do(ctx, "mail", work)
		_ = client.Do(ctx, name, work)
		_ = other.Do(ctx, job, work)
		_ = client.Do(ctx, job, work, holdfast.WithSlots(2))
		go client.Do(context.WithoutCancel(ctx), job, work)
		return err
	})
}

func several(ctx context.Context, client *holdfast.Client, name string, names []string) error {
	_ = client.Do(ctx, "billing", func(ctx context.Context) error {
		return client.DoAll(ctx, []string{"mail", job}, work) // want `DoAll never gets the lock job, which the function given to Client.Do holds itself`
	})
	return client.DoAll(ctx, []string{"mail", job}, func(ctx context.Context) error {
		_ = client.Do(ctx, "billing", work)                               // want `Do never gets the lock "billing", which the function given to Client.DoAll holds itself`
		_, err := client.LockAll(ctx, []string{"x", "mail"})              // want `LockAll never gets the lock "mail"`
		_, err = client.TryLockAll(ctx, []string{"y", "billing", "mail"}) // want `TryLockAll never gets the lock "billing"`
		// Right, or not known:
		_ = client.Do(ctx, "other", work)
		_ = client.DoAll(ctx, []string{"x", name}, work)
		_ = client.DoAll(ctx, names, work)
		_ = client.Do(ctx, job, work, holdfast.WithSlots(2))
		go client.DoAll(context.WithoutCancel(ctx), []string{job}, work)
		return err
	})
}

func update(ctx context.Context, hold, other *holdfast.Hold) error {
	return hold.UpdateData(ctx, func(old []byte) ([]byte, error) {
		_ = other.WriteData(ctx, old)
		return old, hold.WriteData(ctx, old) // want `WriteData waits for the update that calls it`
	})
}

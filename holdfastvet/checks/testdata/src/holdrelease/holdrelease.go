package holdrelease

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
)

var (
	client *holdfast.Client
	kept   *holdfast.Hold
)

func work(ctx context.Context) error { return nil }

func never(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a") // want `hold is never released: the lock stays taken until the client's Shutdown`
	if err != nil {
		return err
	}
	return work(hold.Context())
}

func dropped(ctx context.Context) error {
	_, err := client.TryLock(ctx, "a") // want `the hold of client.TryLock is dropped: nobody can release it or notice its loss`
	client.Lock(ctx, "b")              // want `the hold of client.Lock is dropped`
	return err
}

func noError(ctx context.Context) error {
	hold, _ := client.TryLock(ctx, "a") // want `the error of client.TryLock is discarded: without the lock the hold is nil`
	defer hold.Release(ctx)
	return work(hold.Context())
}

func early(ctx context.Context, ready bool) error {
	hold, err := client.Lock(ctx, "a") // want `hold is not released if the function returns at line 43`
	if err != nil {
		return err
	}
	if !ready {
		return nil
	}
	defer hold.Release(ctx)
	return work(hold.Context())
}

func earlyInLiteral(ctx context.Context) {
	go func() {
		if hold, err := client.TryLock(ctx, "a"); err == nil { // want `hold is not released if the function returns at line 53`
			if err = work(ctx); err != nil {
				return
			}
			hold.Release(ctx)
		}
	}()
}

func onToken(ctx context.Context, known uint64) error {
	hold, err := client.Lock(ctx, "a") // want `hold is not released if the function returns at line 66`
	if err != nil {
		return err
	}
	if hold.Token() <= known {
		return errors.New("an old token")
	}
	defer hold.Release(ctx)
	return work(hold.Context())
}

func onNameOrLease(ctx context.Context, known uint64) error {
	hold, err := client.TryLock(ctx, "a") // want `hold is not released if the function returns at line 79`
	if err != nil {
		return err
	}
	println(hold.Name())
	if hold != nil && hold.Lease().Token == known {
		return nil
	}
	return hold.Release(ctx)
}

func failedWork(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a") // want `hold is not released if the function returns at line 90`
	if err != nil {
		return err
	}
	if err := work(hold.Context()); err != nil {
		return err
	}
	return hold.Release(ctx)
}

func workThatIsReturned(ctx context.Context, quick bool) error {
	hold, err := client.Lock(ctx, "a") // want `hold is not released if the function returns at line 101`
	if err != nil {
		return err
	}
	if quick {
		return work(hold.Context())
	}
	defer hold.Release(ctx)
	return work(hold.Context())
}

func comparedOnly(ctx context.Context) bool {
	hold, err := client.TryLock(ctx, "a") // want `hold is never released`
	return err == nil && hold != nil
}

func afterALoop(ctx context.Context, names []string) error {
	hold, err := client.Lock(ctx, "a") // want `hold is not released if the function returns at line 119`
	if err != nil {
		return err
	}
	for range names {
		if work(ctx) != nil {
			return nil
		}
	}
	return hold.Release(ctx)
}

// All of this is right.

func deferred(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	defer func() { _ = hold.Release(context.WithoutCancel(ctx)) }()
	return work(hold.Context())
}

func byError(ctx context.Context) error {
	hold, err := client.TryLock(ctx, "a")
	switch {
	case errors.Is(err, holdfast.ErrHeld):
		return nil
	case err != nil:
		return err
	}
	return hold.Release(ctx)
}

func perhaps(ctx context.Context, n int) error {
	hold, err := client.TryLock(ctx, "a")
	if err != nil && n > 0 {
		return err
	}
	if !errors.Is(err, holdfast.ErrHeld) {
		return hold.Release(ctx)
	}
	return nil
}

func lost(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	if hold.Err() != nil {
		return nil
	}
	if err := work(hold.Context()); errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return hold.Release(ctx)
}

func lostInLoop(ctx context.Context, jobs chan int) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	if hold == nil {
		return nil
	}
	for {
		select {
		case <-hold.Context().Done():
			return context.Cause(hold.Context())
		case _, ok := <-jobs:
			if !ok {
				return hold.Release(ctx)
			}
		}
	}
}

func aroundALoop(ctx context.Context, names []string) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	for _, name := range names {
		println(name)
	}
	return hold.Release(ctx)
}

func aroundASelect(ctx context.Context, jobs, more chan int) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	select {
	case <-jobs:
	case <-more:
	}
	return hold.Release(ctx)
}

func aroundATypeSwitch(ctx context.Context, job any) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	switch job.(type) {
	case int:
	case string:
	}
	return hold.Release(ctx)
}

func derived(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	held, cancel := context.WithCancel(hold.Context())
	defer cancel()
	if work(held); held.Err() != nil {
		return err
	}
	return hold.Release(ctx)
}

func fromContext(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	cause := context.Cause(hold.Context())
	if cause != nil {
		return cause
	}
	return hold.Release(ctx)
}

func released(ctx context.Context, known uint64) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	if hold.Token() <= known {
		return hold.Release(ctx)
	}
	defer hold.Release(ctx)
	return work(hold.Context())
}

func inBackground(ctx context.Context) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	go work(hold.Context()) // it may release the hold of its context
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return hold.Release(ctx)
}

func returned(ctx context.Context) (*holdfast.Hold, error) {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return nil, err
	}
	return hold, nil
}

func named(ctx context.Context) (hold *holdfast.Hold, err error) {
	hold, err = client.Lock(ctx, "a")
	return
}

func stored(ctx context.Context, holds map[string]*holdfast.Hold) (err error) {
	if kept, err = client.Lock(ctx, "a"); err != nil {
		return err
	}
	holds["b"], err = client.Lock(ctx, "b")
	return err
}

func passedOn(ctx context.Context, to func(*holdfast.Hold), holds chan *holdfast.Hold) error {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	to(hold)
	other, err := client.Lock(ctx, "b")
	if err == nil {
		holds <- other
	}
	return err
}

func captured(ctx context.Context) error {
	var hold *holdfast.Hold
	defer func() {
		if hold != nil {
			hold.Release(ctx)
		}
	}()
	take := func() (err error) {
		hold, err = client.Lock(ctx, "a")
		return err
	}
	return take()
}

func untilShutdown(ctx context.Context) error {
	defer client.Shutdown(ctx)
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return err
	}
	return work(hold.Context())
}

func silenced(ctx context.Context) error {
	_, err := client.Lock(ctx, "singleton") //nolint:holdrelease // held until the process ends
	return err
}

func method(ctx context.Context) (func(context.Context) error, error) {
	hold, err := client.Lock(ctx, "a")
	if err != nil {
		return nil, err
	}
	return hold.Release, nil
}

package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// candidate is a runner whose leaderships the test follows.
type candidate struct {
	*holdfast.LeaderAwareRunner
	leaderships chan *leadership
}

// leadership is one period in which a candidate leads. Its callback returns only when the test
// closes end, even if its context has ended.
type leadership struct {
	ctx  context.Context
	hold *holdfast.Hold
	end  chan struct{}
}

// campaign starts a runner that campaigns and leads until the end of the test.
func (a *testClient) campaign(name string, opts ...holdfast.RunnerOption) *candidate {
	a.tb.Helper()
	r, err := holdfast.NewLeaderAwareRunner(a.Client, name, opts...)
	if err != nil {
		a.tb.Fatal(err)
	}
	c := &candidate{r, make(chan *leadership, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx, func(ctx context.Context) error {
			h, _ := holdfast.HoldFromContext(ctx)
			t := &leadership{ctx, h, make(chan struct{})}
			c.leaderships <- t
			<-t.end // ignores ctx
			return ctx.Err()
		})
	}()
	a.tb.Cleanup(func() {
		cancel()
		for {
			select {
			case t := <-c.leaderships: // one that the test did not wait for
				close(t.end)
			case <-done:
				return
			}
		}
	})
	return c
}

// awaitElected waits for the next leadership.
func (c *candidate) awaitElected(t *testing.T) *leadership {
	t.Helper()
	select {
	case next := <-c.leaderships:
		return next
	case <-time.After(waitLimit):
		t.Fatal("the candidate was not elected")
		return nil
	}
}

// A leader's callback ignores the end of its context, once when the network is cut and once when
// the leader is asked to step down — the overrun is reported, the next leader waits for the end
// of the lease or for the return of the callback, and the old leader campaigns only after its
// callback has returned.
func TestLeaderIgnoresCancellation(t *testing.T) {
	onEachBackend(t, func(t *testing.T, b backend) {
		network, name, exclusion := b.network(t), uniqueName(), exclusionChecker{tb: t}
		overrun := make(chan holdfast.Event, 10)
		clientA, clientB := b.client(t, network), b.longTTLClient(t)
		candidateA := clientA.campaign(name, holdfast.WithOverrunHook(func(e holdfast.Event) { overrun <- e }))
		first := candidateA.awaitElected(t)
		exclusion.check(first.hold)
		candidateB := clientB.campaign(name, holdfast.WithCoolDown(time.Hour)) // does not campaign again after it steps down

		network.cut()
		if cause := awaitEnd(t, first.hold); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the first leadership ended with %v, want lost", cause)
		}
		second := candidateB.awaitElected(t)
		exclusion.check(second.hold)
		if early := first.hold.ExpiresIn(); early > 0 {
			t.Errorf("the next leader was elected %v before the lease's end", early)
		}
		select {
		case e := <-overrun:
			if e.Type != holdfast.EventOverrun || e.Token != first.hold.Token() {
				t.Errorf("the hook received %v", e)
			}
		case <-time.After(waitLimit):
			t.Error("no overrun was reported")
		}
		network.restore()
		seen := clientA.count(holdfast.EventHolderSeen, "")
		time.Sleep(b.ttl / 2)
		if candidateA.IsLeader() || len(candidateA.leaderships) > 0 || clientA.count(holdfast.EventHolderSeen, "") != seen {
			t.Error("a runner campaigns while the callback of its last leadership runs")
		}
		if second.ctx.Err() != nil {
			t.Errorf("the second leadership has ended: %v", context.Cause(second.ctx))
		}
		close(first.end)
		eventually(t, "candidate A campaigns again", func() bool { return clientA.count(holdfast.EventHolderSeen, "") > seen })

		// Now candidate B ignores its context, and is asked to step down.
		stepped := make(chan error, 1)
		go func() { stepped <- candidateB.StepDown(testContext(t)) }()
		if cause := awaitEnd(t, second.hold); !errors.Is(cause, holdfast.ErrSteppedDown) {
			t.Errorf("the second leadership ended with %v, want stepped down", cause)
		}
		select {
		case <-candidateA.leaderships:
			t.Error("elected although the callback of the previous leader still runs")
		case <-time.After(b.ttl + b.ttl/4): // its lease is renewed
		}
		close(second.end)
		if err := <-stepped; err != nil {
			t.Errorf("step down: %v", err)
		}
		third := candidateA.awaitElected(t)
		exclusion.check(third.hold)
		close(third.end)
	})
}

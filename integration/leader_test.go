package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// candidate is a runner whose terms the test follows.
type candidate struct {
	*holdfast.LeaderAwareRunner
	terms chan *term
}

// term is one time that a candidate leads: until the test says end, whatever becomes of
// its context.
type term struct {
	ctx  context.Context
	hold *holdfast.Hold
	end  chan struct{}
}

// stand has a runner campaign and lead until the end of the test.
func (a *actor) stand(name string, opts ...holdfast.RunnerOption) *candidate {
	a.tb.Helper()
	r, err := holdfast.NewLeaderAwareRunner(a.Client, name, opts...)
	if err != nil {
		a.tb.Fatal(err)
	}
	c := &candidate{r, make(chan *term, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx, func(ctx context.Context) error {
			h, _ := holdfast.HoldFromContext(ctx)
			t := &term{ctx, h, make(chan struct{})}
			c.terms <- t
			<-t.end // deaf to ctx
			return ctx.Err()
		})
	}()
	a.tb.Cleanup(func() {
		cancel()
		for {
			select {
			case t := <-c.terms: // one that nobody asked for
				close(t.end)
			case <-done:
				return
			}
		}
	})
	return c
}

// elected waits for the next term.
func (c *candidate) elected(t *testing.T) *term {
	t.Helper()
	select {
	case next := <-c.terms:
		return next
	case <-time.After(patience):
		t.Fatal("not elected")
		return nil
	}
}

// A leader's callback ignores the end of its context, once when the way to the backend is
// cut and once when it is told to step down — the overrun is told, the next leader waits for
// the lease's end or for the return, and the old one campaigns only after its return.
func TestLeaderIgnoresCancellation(t *testing.T) {
	onEach(t, func(t *testing.T, b target) {
		way, name, sequence := b.link(t), fresh(), order{tb: t}
		overrun := make(chan holdfast.Event, 10)
		a, other := b.actor(t, way), b.actor(t, nil)
		deaf := a.stand(name, holdfast.WithOverrunHook(func(e holdfast.Event) { overrun <- e }))
		first := deaf.elected(t)
		sequence.enter(first.hold)
		rival := other.stand(name, holdfast.WithCoolDown(time.Hour)) // gives way for good when it steps down

		way.cut()
		if cause := ended(t, first.hold); !errors.Is(cause, holdfast.ErrLost) {
			t.Errorf("the first term ended with %v, want lost", cause)
		}
		second := rival.elected(t)
		sequence.enter(second.hold)
		if early := first.hold.ExpiresIn(); early > 0 {
			t.Errorf("the next leader was elected %v before the lease's end", early)
		}
		select {
		case e := <-overrun:
			if e.Type != holdfast.EventOverrun || e.Token != first.hold.Token() {
				t.Errorf("the hook was told %v", e)
			}
		case <-time.After(patience):
			t.Error("no overrun was told")
		}
		way.heal()
		asked := a.count(holdfast.EventHolderSeen, "")
		time.Sleep(b.ttl / 2)
		if deaf.IsLeader() || len(deaf.terms) > 0 || a.count(holdfast.EventHolderSeen, "") != asked {
			t.Error("a runner campaigns while its last term's callback runs")
		}
		if second.ctx.Err() != nil {
			t.Errorf("the second term has ended: %v", context.Cause(second.ctx))
		}
		close(first.end)
		eventually(t, "the first campaigns again", func() bool { return a.count(holdfast.EventHolderSeen, "") > asked })

		// Now the other one is deaf, and is told to step down.
		stepped := make(chan error, 1)
		go func() { stepped <- rival.StepDown(bounded(t)) }()
		if cause := ended(t, second.hold); !errors.Is(cause, holdfast.ErrSteppedDown) {
			t.Errorf("the second term ended with %v, want stepped down", cause)
		}
		select {
		case <-deaf.terms:
			t.Error("elected although the callback of the one before still runs")
		case <-time.After(b.ttl + b.ttl/4): // its lease is renewed
		}
		close(second.end)
		if err := <-stepped; err != nil {
			t.Errorf("step down: %v", err)
		}
		third := deaf.elected(t)
		sequence.enter(third.hold)
		close(third.end)
	})
}

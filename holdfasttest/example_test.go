package holdfasttest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

// t stands for the test's own t. TestExamples runs the examples.
var t *testing.T

// Each example is a test in a synctest bubble of its own.
func TestExamples(outer *testing.T) {
	for name, example := range map[string]func(){
		"New": ExampleNew, "Client": ExampleBackend_Client, "Lose": ExampleBackend_Lose,
		"LoseAtRenewal": ExampleBackend_LoseAtRenewal, "LoseAtStep": ExampleBackend_LoseAtStep,
		"TakeOver": ExampleBackend_TakeOver, "StaleHold": ExampleBackend_StaleHold,
		"FailFor": ExampleFaults_FailFor, "Hang": ExampleFaults_Hang, "Slow": ExampleFaults_Slow,
		"Pause": ExampleProcess_Pause, "Kill": ExampleProcess_Kill,
	} {
		outer.Run(name, func(sub *testing.T) {
			synctest.Test(sub, func(bubble *testing.T) {
				t = bubble
				example()
			})
		})
	}
}

func ExampleNew() {
	// In a test: synctest.Test(t, func(t *testing.T) { …
	b := holdfasttest.New(t, holdfast.WithTTL(15*time.Second))
	hold, err := b.Client().Lock(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	b.Lose("billing")
	if err := hold.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("after the loss: %v", err)
	}
}

func ExampleBackend_Client() {
	b := holdfasttest.New(t)
	first, second := b.Client(), b.Client() // two processes
	if _, err := first.TryLock(t.Context(), "billing"); err != nil {
		t.Error(err)
	}
	if _, err := second.TryLock(t.Context(), "billing"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("the second process: %v, want ErrHeld", err)
	}
}

func ExampleBackend_Lose() {
	b := holdfasttest.New(t)
	err := b.Client().Do(t.Context(), "billing", func(ctx context.Context) error {
		b.Lose("billing")
		if ctx.Err() == nil {
			t.Error("the context did not end")
		}
		return nil
	})
	if !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Do: %v, want ErrLost", err)
	}
}

func ExampleBackend_LoseAtRenewal() {
	b := holdfasttest.New(t)
	b.LoseAtRenewal("billing", 3)
	start := time.Now()
	err := b.Client().Do(t.Context(), "billing", func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("Do: %v, want ErrLost", err)
	}
	if got := time.Since(start); got != 30*time.Second { // a renewal every 10 s
		t.Errorf("the lock was lost after %v", got)
	}
}

func ExampleBackend_LoseAtStep() {
	b := holdfasttest.New(t)
	step := b.LoseAtStep("import", 2)
	imported := 0
	err := b.Client().Do(t.Context(), "import", func(ctx context.Context) error {
		for range 5 {
			step()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			imported++
		}
		return nil
	})
	if !errors.Is(err, holdfast.ErrLost) || imported != 1 {
		t.Errorf("%d steps, %v", imported, err)
	}
}

func ExampleBackend_TakeOver() {
	b := holdfasttest.New(t)
	old, err := b.Client().Lock(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	current := b.TakeOver("billing")
	if old.Err() != nil || current.Token() <= old.Token() {
		t.Error("the earlier holder knows already, or the token did not rise")
	}
	<-old.Context().Done() // at its next renewal
}

func ExampleBackend_StaleHold() {
	b := holdfasttest.New(t)
	var highest uint64
	write := func(token uint64) error { // your storage
		if token < highest {
			return errors.New("refused")
		}
		highest = token
		return nil
	}
	stale, current := b.StaleHold("billing")
	if err := write(current.Token()); err != nil {
		t.Error(err)
	}
	if err := write(stale.Token()); err == nil {
		t.Error("the storage accepted a late write")
	}
}

func ExampleFaults_FailFor() {
	b := holdfasttest.New(t)
	hold, err := b.Client().Lock(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	b.FailFor(10 * time.Second) // shorter than the deadline: nothing is lost
	time.Sleep(time.Minute)
	if err := hold.Err(); err != nil {
		t.Error(err)
	}
	b.FailFor(time.Minute)
	<-hold.Context().Done()
}

func ExampleFaults_Hang() {
	b := holdfasttest.New(t)
	a := b.Process("A")
	hold, err := a.Client().Lock(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	a.Hang()                // A is cut off, and others are not
	<-hold.Context().Done() // before another can get the lock
	if _, err := b.Client().Lock(t.Context(), "billing"); err != nil {
		t.Error(err)
	}
}

func ExampleFaults_Slow() {
	b := holdfasttest.New(t)
	b.Slow(2 * time.Second)
	hold, err := b.Client().Lock(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
	if err := hold.Err(); err != nil {
		t.Error(err)
	}
}

func ExampleProcess_Pause() {
	b := holdfasttest.New(t)
	a := b.Process("A")
	hold, err := a.Client().Lock(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	a.Pause()
	next, err := b.Client().Lock(t.Context(), "billing") // waits for the end of the lease
	if err != nil {
		t.Fatal(err)
	}
	// A has checked its lock, and its write arrives now: only the token is behind.
	if hold.Err() != nil || hold.Token() >= next.Token() {
		t.Error("the paused process noticed, or the token did not rise")
	}
	a.Resume()
	if err := hold.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("after the pause: %v, want ErrLost", err)
	}
}

func ExampleProcess_Kill() {
	b := holdfasttest.New(t)
	a := b.Process("A")
	if _, err := a.Client().Lock(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	a.Kill()
	start := time.Now()
	if _, err := b.Client().Lock(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(start); waited < 29*time.Second || waited > 31*time.Second { // the TTL
		t.Errorf("the lock was free after %v", waited)
	}
}

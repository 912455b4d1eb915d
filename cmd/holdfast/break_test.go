package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// unrecordedLocker has a lock whose holder has not written its token yet, as on Azure just after a grant.
type unrecordedLocker struct {
	holdfast.Locker
	broken []driver.BreakTarget
}

func (l *unrecordedLocker) Inspect(context.Context, string) (driver.Record, error) {
	return driver.Record{State: driver.StateHeld}, nil
}

func (l *unrecordedLocker) Capabilities() driver.Capabilities {
	can := l.Locker.Capabilities()
	can.Breaker = l
	return can
}

func (l *unrecordedLocker) Break(_ context.Context, _ string, target driver.BreakTarget) error {
	l.broken = append(l.broken, target)
	return nil
}

func (l *unrecordedLocker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.Break(ctx, name, target)
}

// Without its token the holder cannot be named: a later one than the user was shown could be broken.
func TestBreakNeedsAToken(t *testing.T) {
	for _, now := range []bool{false, true} {
		l := &unrecordedLocker{Locker: memory.New()}
		client, err := holdfast.New(l)
		if err != nil {
			t.Fatal(err)
		}
		a := &app{backend: "file:/locks", stdout: io.Discard, stderr: io.Discard, log: newLogger(io.Discard, false, false)}
		err = (&breakCmd{Name: "job", Yes: true, Now: now}).breakLock(t.Context(), a, client)
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != codeHeld || len(l.broken) > 0 {
			t.Errorf("now %v: error %v; broken: %v", now, err, l.broken)
		}
		if err := client.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

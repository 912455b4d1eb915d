package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// signaledRelease answers a release only when the signal that came with it was read.
type signaledRelease struct {
	holdfast.Locker
	signals chan os.Signal
	fail    atomic.Pointer[error] // the first release ends with it
}

func (l *signaledRelease) Release(ctx context.Context, lease holdfast.Lease) error {
	for len(l.signals) > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := l.fail.Swap(nil); err != nil {
		return *err
	}
	return l.Locker.Release(ctx, lease)
}

// A service manager sends SIGTERM to holdfast and its command: holdfast gets its own
// when the command may have ended already. What is told is what Release says.
func TestSignalDuringRelease(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"released": {nil, "released \"job\"\n"},
		"failed":   {errors.New("no route to host"), `could not release "job"; others get it in`},
	} {
		t.Run(name, func(t *testing.T) {
			caught := make(chan os.Signal, 1)
			locker := &signaledRelease{Locker: memory.New(), signals: caught}
			if test.err != nil {
				locker.fail.Store(&test.err)
			}
			client, err := holdfast.New(locker, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Shutdown(t.Context()) }()
			hold, err := client.Lock(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			run := &runner{runCmd: &runCmd{Name: "job"}, say: newReporter(&out, false, false), signals: signals{caught: caught}}
			caught <- syscall.SIGTERM
			run.release(hold)
			if !strings.Contains(out.String(), test.want) || strings.Count(out.String(), "\n") != 1 {
				t.Errorf("said:\n%swant one line: %s", out.String(), test.want)
			}
			if !run.signals.ended {
				t.Error("the signal was not heeded")
			}
		})
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// scriptedLocker is a locker whose answers a test can change.
type scriptedLocker struct {
	holdfast.Locker
	acquire  func()      // called before an acquire is answered
	released atomic.Bool // a release has come
	mute     atomic.Bool // renewals fail
}

var errMute = errors.New("no route to host")

func (l *scriptedLocker) TryAcquire(ctx context.Context, r driver.Request) (holdfast.Lease, error) {
	if l.acquire != nil {
		l.acquire()
	}
	return l.Locker.TryAcquire(context.WithoutCancel(ctx), r)
}

func (l *scriptedLocker) Renew(ctx context.Context, lease holdfast.Lease) error {
	if l.mute.Load() {
		return errMute
	}
	return l.Locker.Renew(ctx, lease)
}

func (l *scriptedLocker) Release(ctx context.Context, lease holdfast.Lease) error {
	l.released.Store(true)
	return l.Locker.Release(ctx, lease)
}

// newRun makes a "holdfast run" of a shell script that is not started yet.
func newRun(t *testing.T, l *scriptedLocker, ttl time.Duration, say io.Writer, script string) *runner {
	t.Helper()
	l.Locker = memory.New()
	client, err := holdfast.New(l, holdfast.WithTTL(ttl), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Shutdown(context.Background()) })
	reporter := newReporter(say, false, false)
	return &runner{
		runCmd: &runCmd{Name: "job", Command: []string{"sh", "-c", script}},
		say:    reporter, news: &news{say: reporter}, client: client, path: "/bin/sh", start: time.Now(),
		signals: signals{caught: make(chan os.Signal, 1)}, heard: func() {},
	}
}

// The command finds what it may want to know of the lock, and nothing else: above all
// not the lease's ID, which proves ownership.
func TestEnvironment(t *testing.T) {
	run := newRun(t, &scriptedLocker{}, time.Minute, io.Discard, "")
	hold, err := run.client.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Collect(maps.Keys(variables(os.Environ())))
	added := variables(run.environment(hold))
	maps.DeleteFunc(added, func(key, _ string) bool { return slices.Contains(before, key) })
	want := map[string]string{"HOLDFAST_TOKEN": strconv.FormatUint(hold.Token(), 10), "HOLDFAST_NAME": "job",
		"HOLDFAST_OWNER": hold.Lease().Owner, "HOLDFAST_SLOT": "0"}
	if !maps.Equal(added, want) {
		t.Errorf("the command's environment has also\n%q\nwant\n%q", added, want)
	}
}

func variables(environment []string) map[string]string {
	all := map[string]string{}
	for _, entry := range environment {
		key, value, _ := strings.Cut(entry, "=")
		all[key] = value
	}
	return all
}

// A signal that comes while the lock is being granted ends the waiting, and the lock is
// not left behind.
func TestSignalWhileGranted(t *testing.T) {
	for name, try := range map[string]bool{"waiting": false, "trying": true} {
		t.Run(name, func(t *testing.T) {
			locker := &scriptedLocker{}
			run := newRun(t, locker, time.Minute, io.Discard, "exit 9")
			run.Try = try
			locker.acquire = func() {
				run.signals.caught <- syscall.SIGTERM
				for len(run.signals.caught) > 0 { // until it was read
					time.Sleep(time.Millisecond)
				}
			}
			_, err := run.once()
			if got, want := codeOf(err), codeSignal+int(syscall.SIGTERM); got != want || !run.signals.ended {
				t.Errorf("exit code %d (%v), want %d", got, err, want)
			}
			record, err := run.client.Inspect(t.Context(), "job")
			if err != nil || record.State != driver.StateFree || !locker.released.Load() {
				t.Errorf("the lock is %v (%v), a release was sent: %v", record.State, err, locker.released.Load())
			}
		})
	}
}

// A lock that is lost before the command was started is reported, and nothing is run.
func TestLostBeforeStart(t *testing.T) {
	locker := &scriptedLocker{}
	locker.mute.Store(true)
	var out bytes.Buffer
	run := newRun(t, locker, 500*time.Millisecond, writerFunc(func(line []byte) {
		out.Write(line)
		if bytes.Contains(line, []byte("acquired")) {
			time.Sleep(time.Second) // holdfast is paused here: longer than the lease
		}
	}), "exit 9")
	lost, err := run.once()
	if !lost || codeOf(err) != codeLost {
		t.Errorf("lost: %v, exit code %d; want true, %d", lost, codeOf(err), codeLost)
	}
	if want := `lost "job" before the command was started`; !strings.Contains(out.String(), want) {
		t.Errorf("said:\n%swant %s", out.String(), want)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
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
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// patience bounds every wait for something that must happen.
const patience = time.Minute

// scriptedLocker is a Locker whose answers a test controls.
type scriptedLocker struct {
	holdfast.Locker
	beforeAcquire func()      // called before an acquire is answered
	released      atomic.Bool // a release was requested
	failRenewals  atomic.Bool
}

var errUnreachable = errors.New("no route to host")

func (l *scriptedLocker) TryAcquire(ctx context.Context, r driver.Request) (holdfast.Lease, error) {
	if l.beforeAcquire != nil {
		l.beforeAcquire()
	}
	return l.Locker.TryAcquire(context.WithoutCancel(ctx), r)
}

func (l *scriptedLocker) Renew(ctx context.Context, lease holdfast.Lease) (holdfast.Lease, error) {
	if l.failRenewals.Load() {
		return holdfast.Lease{}, errUnreachable
	}
	return l.Locker.Renew(ctx, lease)
}

func (l *scriptedLocker) Release(ctx context.Context, lease holdfast.Lease) error {
	l.released.Store(true)
	return l.Locker.Release(ctx, lease)
}

// newRunner makes a runner for a shell script. It does not start it.
func newRunner(t *testing.T, l *scriptedLocker, ttl time.Duration, out io.Writer, script string) *runner {
	t.Helper()
	l.Locker = memory.New()
	client := locktest.NewClient(t, l, holdfast.WithTTL(ttl))
	log := messages.NewLog(out, false, false)
	return &runner{
		runCmd: &runCmd{Name: "job", Command: []string{"sh", "-c", script}},
		log:    log, events: &eventLogger{log: log}, client: client, executable: "/bin/sh", waitStart: time.Now(),
		signals: signals.Caught{C: make(chan os.Signal, 1)}, answered: func() {},
	}
}

// The command's environment describes the lock, and holds nothing else of it: above all not
// the lease's ID, which proves ownership.
func TestEnvironment(t *testing.T) {
	run := newRunner(t, &scriptedLocker{}, time.Minute, io.Discard, "")
	hold, err := run.client.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Collect(maps.Keys(variables(os.Environ())))
	added := variables(run.environment(held{lease: hold, first: hold}))
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
// released.
func TestSignalWhileGranted(t *testing.T) {
	for name, try := range map[string]bool{"waiting": false, "trying": true} {
		t.Run(name, func(t *testing.T) {
			locker := &scriptedLocker{}
			run := newRunner(t, locker, time.Minute, io.Discard, "exit 9")
			run.Try = try
			locker.beforeAcquire = func() {
				run.signals.C <- syscall.SIGTERM
				for len(run.signals.C) > 0 { // until the signal was read
					time.Sleep(time.Millisecond)
				}
			}
			_, err := run.runOnce()
			if got, want := exitcode.Of(err), exitcode.Signal+int(syscall.SIGTERM); got != want || !run.signals.EndRequested {
				t.Errorf("exit code %d (%v), want %d", got, err, want)
			}
			record, err := run.client.Inspect(t.Context(), "job")
			if err != nil || record.State != driver.StateFree || !locker.released.Load() {
				t.Errorf("the lock is %v (%v), a release was sent: %v", record.State, err, locker.released.Load())
			}
		})
	}
}

// A loss before the command was started is reported, and the command is not run.
func TestLostBeforeStart(t *testing.T) {
	locker := &scriptedLocker{}
	locker.failRenewals.Store(true)
	var out bytes.Buffer
	run := newRunner(t, locker, 500*time.Millisecond, writerFunc(func(line []byte) {
		out.Write(line)
		if bytes.Contains(line, []byte("acquired")) {
			time.Sleep(time.Second) // holdfast is paused for longer than the lease
		}
	}), "exit 9")
	lost, err := run.runOnce()
	if !lost || exitcode.Of(err) != exitcode.Lost {
		t.Errorf("lost: %v, exit code %d; want true, %d", lost, exitcode.Of(err), exitcode.Lost)
	}
	if want := `lost "job" before the command was started`; !strings.Contains(out.String(), want) {
		t.Errorf("messages:\n%swant %s", out.String(), want)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}

// lateReleaseLocker answers a release only after the signal that came with it was read.
type lateReleaseLocker struct {
	holdfast.Locker
	signals chan os.Signal
	fail    atomic.Pointer[error] // the error of every release, or nil
}

func (l *lateReleaseLocker) Release(ctx context.Context, lease holdfast.Lease) error {
	for len(l.signals) > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := l.fail.Load(); err != nil {
		return *err
	}
	return l.Locker.Release(ctx, lease)
}

// A service manager sends SIGTERM to holdfast and its command. When holdfast handles its own,
// the command may have ended already. The message says what Release has returned.
func TestSignalDuringRelease(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"released": {nil, "released \"job\"\n"},
		"failed":   {errors.New("no route to host"), `could not release "job"; it becomes free within`},
	} {
		t.Run(name, func(t *testing.T) {
			caught := make(chan os.Signal, 1)
			locker := &lateReleaseLocker{Locker: memory.New(), signals: caught}
			if test.err != nil {
				locker.fail.Store(&test.err)
			}
			client := locktest.NewClient(t, locker)
			hold, err := client.Lock(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			run := &runner{runCmd: &runCmd{Name: "job"}, log: messages.NewLog(&out, false, false), signals: signals.Caught{C: caught}}
			caught <- syscall.SIGTERM
			begin := time.Now()
			run.release(hold)
			if took := time.Since(begin); took >= shutdownTimeout {
				t.Errorf("the release took %v: the signal did not end the retries", took)
			}
			locker.fail.Store(nil)
			if !strings.Contains(out.String(), test.want) || strings.Count(out.String(), "\n") != 1 {
				t.Errorf("messages:\n%swant one line: %s", out.String(), test.want)
			}
			if !run.signals.EndRequested {
				t.Error("the signal did not ask holdfast to end")
			}
		})
	}
}

// deniedLocker refuses requests as a folder that became read-only does.
type deniedLocker struct {
	driver.Locker
	denied  atomic.Bool
	refused chan struct{} // has a value after a refusal
}

func (l *deniedLocker) TryAcquire(ctx context.Context, r driver.Request) (driver.Lease, error) {
	if l.denied.Load() {
		select {
		case l.refused <- struct{}{}:
		default:
		}
		return driver.Lease{}, &driver.OpError{Op: "acquire", Backend: "memory", Name: r.Name, Err: driver.Denied(errors.New("read-only"))}
	}
	return l.Locker.TryAcquire(ctx, r)
}

// What a person must mend ends the first wait at once. Later ones, with --keep, go on.
func TestRunAndALastingError(t *testing.T) {
	denied := &deniedLocker{Locker: memory.New(), refused: make(chan struct{}, 1)}
	denied.denied.Store(true)
	r := newRunner(t, &scriptedLocker{}, time.Minute, io.Discard, "")
	client := locktest.NewClient(t, denied)
	r.client = client
	limit := time.Hour
	r.Wait = &limit
	if _, err := r.acquire(); exitcode.Of(err) != exitcode.Unavailable || !strings.HasSuffix(err.Error(), "read-only") {
		t.Errorf("the first wait: %v", err)
	}
	<-denied.refused
	r.acquired = true
	go func() {
		<-denied.refused
		r.signals.C <- syscall.SIGTERM
	}()
	if _, err := r.acquire(); exitcode.Of(err) != exitcode.Signal+int(syscall.SIGTERM) {
		t.Errorf("a later wait: %v", err)
	}
}

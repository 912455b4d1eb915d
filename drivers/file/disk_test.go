package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// expectPathError expects an error that names the path and means an unknown outcome.
func expectPathError(t *testing.T, what, path string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%s: error %v, want one that names %s", what, err, path)
	}
	for _, known := range []error{driver.ErrHeld, driver.ErrLost, driver.ErrConflict, driver.ErrInvalid, driver.ErrClosed} {
		if errors.Is(err, known) {
			t.Errorf("%s: error %v passes for a known outcome", what, err)
		}
	}
}

// A folder that cannot be used is named.
func TestFolderThatCannotBeUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "")
	expectPathError(t, "a file", path, errOf(New(path)))

	gone := filepath.Join(t.TempDir(), "locks")
	l := newTestLocker(t, gone, newFakeClock().clock())
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	for call, err := range everyCall(t.Context(), l) {
		expectPathError(t, call, gone, err)
	}

	readOnly := t.TempDir()
	switch {
	case runtime.GOOS == "windows":
		return // it has no mode that forbids to create files in a folder
	case os.Geteuid() == 0:
		readOnly = "/proc" // refuses root as well
	default:
		if err := os.Chmod(readOnly, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	_, err := newTestLocker(t, readOnly, newFakeClock().clock()).TryAcquire(t.Context(), request("first"))
	expectPathError(t, "TryAcquire", readOnly, err)
}

// A record that cannot be replaced stays as it is, and no partial file is left.
func TestWriteFails(t *testing.T) {
	l, dir := freshLocker(t)
	lease := mustAcquire(t, l, request("first"))
	tmp := filepath.Join(dir, "n.tmp")
	if err := os.MkdirAll(filepath.Join(tmp, "x"), 0o700); err != nil { // in the way
		t.Fatal(err)
	}
	expectPathError(t, "Renew", tmp, errOf(l.Renew(t.Context(), lease)))
	expectPathError(t, "Release", tmp, l.Release(t.Context(), lease))
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateHeld || r.Token != lease.Token {
		t.Errorf("after it: %+v, error %v; want held as before", r, err)
	}
	if err := os.RemoveAll(tmp); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Errorf("once it is out of the way: %v", err)
	}
}

// The driver syncs in this order: a record before it replaces the old one, and then the folder,
// if the record has a new token or new data. These may not get lost in a crash. A lost renewal or
// release does no harm, since a crash of the machine ends every lease.
func TestSynced(t *testing.T) {
	t.Parallel()
	l, dir := freshLocker(t)
	path := filepath.Join(dir, "n.json")
	var asked []string
	var before []byte
	changed := func() string {
		now, _ := os.ReadFile(path)
		if string(now) == string(before) {
			return ""
		}
		return " of the new record"
	}
	l.disk.sync = func(f *os.File) error {
		content, err := os.ReadFile(f.Name())
		if err != nil || len(content) == 0 {
			t.Errorf("sync of %s, which holds %q (%v)", f.Name(), content, err)
		}
		asked = append(asked, "sync "+filepath.Base(f.Name())+changed())
		return f.Sync()
	}
	l.disk.syncDir = func(at string) error {
		asked = append(asked, "sync folder"+changed())
		if at != dir {
			t.Errorf("sync of the folder %s", at)
		}
		return syncDir(at)
	}
	var lease driver.Lease
	const file, folder = "sync n.tmp", "sync folder of the new record"
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"acquire", func() (err error) { lease, err = l.TryAcquire(t.Context(), request("first")); return err }, []string{file, folder}},
		{"renew", func() error { return errOf(l.Renew(t.Context(), lease)) }, []string{file}},
		{"write data", func() error {
			return l.WriteData(t.Context(), lease, []byte("new"), driver.DataRevision{Token: lease.Token})
		}, []string{file, folder}},
		{"inspect", func() error { _, err := l.Inspect(t.Context(), "n"); return err }, nil},
		{"release", func() error { return l.Release(t.Context(), lease) }, []string{file}},
		{"release again", func() error { return l.Release(t.Context(), lease) }, nil},
		{"acquire without new data", func() error {
			req := request("second")
			req.Data = nil
			_, err := l.TryAcquire(t.Context(), req)
			return err
		}, []string{file, folder}},
		{"prune", func() error { return l.storePrunedToken(t.Context(), 7) }, []string{"sync .pruned.tmp", "sync folder"}},
	} {
		asked = nil
		before, _ = os.ReadFile(path)
		if err := step.do(); err != nil || !slices.Equal(asked, step.want) {
			t.Errorf("%s: asked %q, error %v; want %q", step.name, asked, err, step.want)
		}
	}
}

// A grant is not reported if its record may not be on disk.
func TestSyncFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is broken")
	for _, what := range []string{"file", "folder"} {
		l, _ := freshLocker(t)
		if what == "file" {
			l.disk.sync = func(*os.File) error { return broken }
		} else {
			l.disk.syncDir = func(string) error { return broken }
		}
		if _, err := l.TryAcquire(t.Context(), request("first")); !errors.Is(err, broken) {
			t.Errorf("%s: error %v, want the disk's", what, err)
		}
	}
}

// A caller whose context ends during a call gets an error that means an unknown outcome. Nothing is
// written for it after that.
func TestNothingIsWrittenAfterTheContextEnds(t *testing.T) {
	t.Parallel()
	l, dir := freshLocker(t)
	lease := mustAcquire(t, l, request("first"))
	path := filepath.Join(dir, "n.json")
	before := must(os.ReadFile(path))
	for name, do := range map[string]func(context.Context) error{
		"renew":   func(ctx context.Context) error { return errOf(l.Renew(ctx, lease)) },
		"release": func(ctx context.Context) error { return l.Release(ctx, lease) },
		"write data": func(ctx context.Context) error {
			return l.WriteData(ctx, lease, []byte("new"), driver.DataRevision{Token: lease.Token})
		},
		"break": func(ctx context.Context) error { return l.BreakNow(ctx, "n", driver.BreakAnybody()) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		reads := 0
		l.disk.open = func(ctx context.Context, path string, flag int) (*os.File, error) {
			if strings.HasSuffix(path, ".json") {
				if reads++; reads == 2 { // the one under the lock
					cancel()
				}
			}
			return openFile(ctx, path, flag)
		}
		if err := do(ctx); !errors.Is(err, context.Canceled) || reads != 2 {
			t.Errorf("%s: error %v after %d reads", name, err, reads)
		}
		cancel()
		if after := must(os.ReadFile(path)); string(after) != string(before) {
			t.Errorf("%s: the record was changed, to %s", name, after)
		}
	}
}

// hang makes the disk of a Locker hang until resume is called.
func hang(t *testing.T, l *Locker) (resume func()) {
	t.Helper()
	resumed := make(chan struct{})
	l.disk.open = func(ctx context.Context, path string, flag int) (*os.File, error) {
		<-resumed
		return openFile(ctx, path, flag)
	}
	resume = sync.OnceFunc(func() { close(resumed) })
	t.Cleanup(resume) // before the Locker is closed
	return resume
}

// A caller may change its data after its call has returned, although the disk has not answered. The
// race detector fails this test if the driver still reads the caller's data.
func TestDataAreCopied(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, *Locker, []byte) error{
		"acquire": func(ctx context.Context, l *Locker, data []byte) error {
			req := request("first")
			req.Data = data
			_, err := l.TryAcquire(ctx, req)
			return err
		},
		"write data": func(ctx context.Context, l *Locker, data []byte) error {
			return l.WriteData(ctx, driver.Lease{Name: "n", ID: driver.NewLeaseID("first"), TTL: time.Minute}, data, driver.DataRevision{})
		},
	} {
		l, _ := freshLocker(t)
		mustAcquire(t, l, request("first"))
		if name == "acquire" {
			l = newTestLocker(t, t.TempDir(), newFakeClock().clock()) // there the lock is free
		}
		resume := hang(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		data := []byte("data")
		if err := do(ctx, l, data); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		resume()
		data[0] = 'X' // not synchronized with what the call reads
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// underWay reports whether an acquire with the ID is under way.
func underWay(l *Locker, id driver.LeaseID) bool {
	l.acquires.mu.Lock()
	defer l.acquires.mu.Unlock()
	return l.acquires.ids[id] != nil
}

// interrupted returns what a call returns whose context ends while it waits. On a busy machine the
// context may end before the call waits. The call is then repeated with more time.
func interrupted(t *testing.T, do func(ctx context.Context) error, waited func(error) bool) error {
	t.Helper()
	var err error
	for limit := 10 * time.Millisecond; limit < time.Minute; limit *= 10 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err = do(ctx)
		deadline, _ := ctx.Deadline()
		late := time.Since(deadline)
		cancel()
		if late >= callLimit { // as if only the call's own limit counted
			t.Errorf("a call returned %v after its context had ended: %v", late, err)
		}
		if err == nil || waited(err) {
			break
		}
	}
	return err
}

// The cause of a context's end, such as the loss of another lock, is no outcome for this lock.
func TestCauseIsNoOutcome(t *testing.T) {
	t.Parallel()
	l, dir := newTestLocker(t, t.TempDir(), newFakeClock().clock()), t.TempDir()
	hang(t, l)
	locked := newTestLocker(t, dir, newFakeClock().clock())
	flocked(t, filepath.Join(dir, "n.lock"))
	for what, l := range map[string]*Locker{"the disk hangs": l, "the lock file is taken": locked} {
		for _, cause := range []error{driver.ErrLost, driver.ErrHeld, driver.ErrClosed, driver.ErrInvalid} {
			ctx, cancel := context.WithCancelCause(t.Context())
			req := request(cause.Error())
			go func() {
				for !underWay(l, req.ID) && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(5 * time.Millisecond) // so that the call mostly waits by then
				cancel(fmt.Errorf("hold of another lock: %w", cause))
			}()
			_, err := l.TryAcquire(ctx, req)
			cancel(nil) // ends the goroutine if the call returned too early
			if !errors.Is(err, context.Canceled) || errors.Is(err, cause) || !strings.Contains(err.Error(), "hold of another lock") {
				t.Errorf("%s, cause %v: error %v", what, cause, err)
			}
		}
	}
}

// An acquire may go on after its caller has returned. A release of the same ID waits for its end, so
// that the lock is not granted after the release.
func TestReleaseFollowsTheAcquire(t *testing.T) {
	t.Parallel()
	l, _ := freshLocker(t)
	resume := hang(t, l)
	pending := func() int {
		l.acquires.mu.Lock()
		defer l.acquires.mu.Unlock()
		return len(l.acquires.ids)
	}
	acquire := func(ctx context.Context) error { _, err := l.TryAcquire(ctx, request("first")); return err }
	if err := interrupted(t, acquire, func(error) bool { return pending() > 0 }); !errors.Is(err, context.DeadlineExceeded) || pending() != 1 {
		t.Fatalf("%v, %d acquires are under way", err, pending())
	}
	release := func(ctx context.Context) error {
		return l.Release(ctx, driver.Lease{Name: "n", ID: driver.NewLeaseID("first")})
	}
	waits := func(err error) bool { return strings.Contains(err.Error(), "still under way") }
	if err := interrupted(t, release, waits); !errors.Is(err, context.DeadlineExceeded) || !waits(err) || pending() != 1 {
		t.Errorf("Release: %v, while %d acquires are under way", err, pending())
	}
	resume()
	mustRelease(t, l, driver.Lease{Name: "n", ID: driver.NewLeaseID("first")})
	if len(l.acquires.ids) != 0 {
		t.Errorf("acquires under way after the release: %v", l.acquires.ids)
	}
}

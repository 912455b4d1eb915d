package file

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func requestFor(name string) driver.Request {
	req := request("of " + name)
	req.Name = name
	return req
}

// backdate makes a file look as if it had been written that long ago.
func backdate(t *testing.T, path string, age time.Duration) {
	t.Helper()
	then := time.Now().Add(-age)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

// A prune removes a record and its lock file if the retention has passed since the release or the
// expiry, and nothing else.
func TestPrune(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), newFakeClock()
	l := newTestLocker(t, dir, d.clock())
	const retention = defaultRetention
	released := func(name string) string {
		mustRelease(t, l, mustAcquire(t, l, requestFor(name)))
		return filepath.Join(dir, name+".json")
	}
	written := func(name, content string) string {
		path := filepath.Join(dir, name+".json")
		write(t, path, content)
		return path
	}
	gone := []string{released("old"), filepath.Join(dir, "old.lock"), filepath.Join(dir, "old.tmp")}
	written("old", string(must(os.ReadFile(gone[0]))))
	write(t, gone[2], "") // a crash left it
	mustAcquire(t, l, requestFor("expired"))
	gone = append(gone, filepath.Join(dir, "expired.json"))
	d.advance(retention - time.Minute)
	mustAcquire(t, l, requestFor("expired-since")) // a minute later
	d.advance(time.Minute + time.Minute)
	mustAcquire(t, l, requestFor("held"))
	stay := []string{released("young"), filepath.Join(dir, "held.json"), filepath.Join(dir, "expired-since.json"),
		written("damaged", "{"), written("another", "{}\n"),
		written("copied", string(must(os.ReadFile(gone[0])))),
		written("elsewhere", strings.NewReplacer("boot 1", "boot 2", "machine 1", "machine 2", `"old"`,
			`"elsewhere"`).Replace(string(must(os.ReadFile(gone[0]))))),
		filepath.Join(dir, "notes.txt")}
	write(t, stay[len(stay)-1], "")
	for _, path := range append(gone, stay...) {
		backdate(t, path, retention+time.Minute)
	}
	backdate(t, stay[0], retention-time.Minute)

	if removed, err := l.prune(t.Context()); err != nil || removed != 2 {
		t.Errorf("%d removed, error %v; want 2", removed, err)
	}
	for _, path := range gone {
		if exists(path) {
			t.Errorf("%s still exists", path)
		}
	}
	for _, path := range stay {
		if !exists(path) {
			t.Errorf("%s was removed", path)
		}
	}
}

// Promise 3: tokens rise across a prune, also if the clock was set back.
func TestPruneKeepsTokensRising(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), newFakeClock()
	l := newTestLocker(t, dir, d.clock())
	l.settings.retention = 0
	var last uint64
	for round, wall := range []time.Time{time.Now(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Now()} {
		d.setWall(wall)
		for _, name := range []string{"n", "n", "m"} {
			req := requestFor(name)
			req.ID = driver.NewLeaseID(fmt.Sprint(round, last))
			lease := mustAcquire(t, l, req)
			if name == "n" && lease.Token <= last {
				t.Errorf("round %d: token %d after %d", round, lease.Token, last)
			}
			if name == "n" {
				last = lease.Token
			}
			if r, err := l.Inspect(t.Context(), "m"); err != nil || len(r.History) > 0 {
				t.Errorf("round %d: the history of a lock's first holder is %+v, error %v; want none", round, r.History, err)
			}
			mustRelease(t, l, lease)
		}
		if removed, err := l.prune(t.Context()); err != nil || removed != 2 {
			t.Fatalf("%d removed, error %v", removed, err)
		}
		if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Token != 0 || r.State != driver.StateFree {
			t.Errorf("a pruned lock: %+v, error %v", r, err)
		}
	}
}

// If the highest removed token cannot be read, a name without a record is not granted, and no lock file is left: another user of the folder
// could not lock that.
func TestPrunedTokenIsDamaged(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "x", "-1", "1 2", "18446744073709551616", strings.Repeat("1", 100), "a folder"} {
		l, dir := freshLocker(t)
		path := filepath.Join(dir, prunedFile)
		if content != "a folder" {
			write(t, path, content)
		} else if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := l.TryAcquire(t.Context(), request("first"))
		expectPathError(t, fmt.Sprintf("%q", content), path, err)
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%q: the folder holds %v (%v)", content, entries, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(t, path, "9000000000000000\n") // as the error says
		if lease := mustAcquire(t, l, request("first")); lease.Token != 9000000000000001 {
			t.Errorf("token %d", lease.Token)
		}
	}
}

// A lock file that was removed and created again is another file. A process that has locked the old
// one detects that.
func TestRemovedLockFileIsNotCurrent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n.lock")
	f := flocked(t, path)
	if current, err := isCurrent(f, path); !current || err != nil {
		t.Errorf("as it was locked: %t, %v", current, err)
	}
	err := os.Rename(path, path+".old") // so that its inode number is not used again
	if runtime.GOOS == "windows" {
		if err == nil {
			t.Error("Windows renamed an open file, so isCurrent must work there, too")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if current, err := isCurrent(f, path); current || err != nil {
		t.Errorf("removed: %t, %v", current, err)
	}
	write(t, path, "")
	if current, err := isCurrent(f, path); current || err != nil {
		t.Errorf("created again: %t, %v", current, err)
	}
}

// Prunes that remove every lock as soon as it is free break neither exclusion nor the order of the
// tokens.
func TestPruneMeetsHolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	var inside, removed atomic.Int64
	var last atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	locker := func() *Locker {
		l := mustNew(t, dir)
		l.settings.retention = 0
		return l
	}
	for range 2 {
		l := locker()
		wg.Go(func() {
			for ctx.Err() == nil {
				n, err := l.prune(ctx)
				removed.Add(int64(n))
				if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("prune: %v", err)
				}
			}
		})
	}
	var holders sync.WaitGroup
	for i := range 4 {
		l := locker()
		holders.Go(func() {
			for range 50 {
				lease, err := wait(t.Context(), l, "n", fmt.Sprint(i))
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders", n)
				}
				if before := last.Swap(lease.Token); before >= lease.Token {
					t.Errorf("token %d after %d", lease.Token, before)
				}
				inside.Add(-1)
				if err := l.Release(t.Context(), lease); err != nil {
					t.Error(err)
				}
				time.Sleep(rand.N(20 * time.Millisecond)) // so that a prune can remove the record
			}
		})
	}
	holders.Wait()
	stop()
	wg.Wait()
	if removed.Load() == 0 {
		t.Error("nothing was removed during the test")
	}
	t.Logf("%d removed", removed.Load())
}

// A grant starts a prune, unless a process of the folder pruned within the last hour.
func TestGrantStartsAPrune(t *testing.T) {
	t.Parallel()
	dir, d := t.TempDir(), newFakeClock()
	grant := func() {
		l, err := newLocker(dir, d.clock())
		if err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, l, driver.Request{Name: "other", ID: driver.NewLeaseID(fmt.Sprint(time.Now())), TTL: time.Second})
		for l.calls.Running() > 0 { // Close would stop it
			time.Sleep(time.Millisecond)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.advance(time.Second)
	}
	grant()
	path := filepath.Join(dir, "idle.json")
	idle := func() {
		t.Helper()
		l := newTestLocker(t, dir, d.clock())
		mustRelease(t, l, mustAcquire(t, l, requestFor("idle")))
		backdate(t, path, defaultRetention+time.Minute)
		d.advance(defaultRetention + time.Minute)
	}
	idle()
	grant()
	if !exists(path) {
		t.Error("removed although the last prune was just now")
	}
	backdate(t, filepath.Join(dir, prunedFile), pruneEvery+time.Minute)
	grant()
	if exists(path) {
		t.Error("an unused lock still exists after a grant")
	}
}

// A prune also removes the files that a crash during a removal or a failed acquire leaves. It
// removes no file that another program may have made.
func TestPruneRemovesOrphans(t *testing.T) {
	t.Parallel()
	l, dir := freshLocker(t)
	long := stem(strings.Repeat("x", 300))
	gone := []string{"gone.lock", "gone.tmp", "alone.lock", long + ".lock"}
	stay := []string{"young.lock", "young.tmp", "taken.lock", "yarn.lock", "Cargo.lock", "notes.tmp", ".pruned.lock"}
	for _, name := range append(gone, stay...) {
		path := filepath.Join(dir, name)
		content := map[string]string{"yarn.lock": "# yarn lockfile v1"}[name]
		write(t, path, content)
		backdate(t, path, defaultRetention+time.Minute)
		if strings.HasPrefix(name, "young") {
			backdate(t, path, defaultRetention-time.Minute)
		}
	}
	flocked(t, filepath.Join(dir, "taken.lock"))
	removed, err := l.prune(t.Context())
	if removed != 0 || err == nil || !strings.Contains(err.Error(), "taken.lock") {
		t.Errorf("%d records removed, error %v; want 0, and an error about taken.lock", removed, err)
	}
	for _, name := range gone {
		if exists(filepath.Join(dir, name)) {
			t.Errorf("%s still exists", name)
		}
	}
	for _, name := range stay {
		if !exists(filepath.Join(dir, name)) {
			t.Errorf("%s was removed", name)
		}
	}
}

// If another process has removed the record first, no new lock file is left.
func TestPruneOfARemovedRecord(t *testing.T) {
	t.Parallel()
	l, dir := freshLocker(t)
	if removed, err := l.remove(t.Context(), "n", 1); removed || err != nil {
		t.Errorf("removed %t, error %v", removed, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the folder holds %v (%v)", entries, err)
	}
}

// A prune ends in time if a stopped process has a file locked. While a prune hangs with its disk, no
// other one starts.
func TestPrunesDoNotPileUp(t *testing.T) {
	for _, what := range []string{"the lock file is taken", "the disk hangs"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, dir := freshLocker(t)
				lease := mustAcquire(t, l, request("first"))
				hanging := what == "the disk hangs"
				if hanging {
					resumed := make(chan struct{})
					defer close(resumed)
					l.disk.open = func(ctx context.Context, path string, flag int) (*os.File, error) {
						if filepath.Base(path) == prunedFile {
							<-resumed
						}
						return openFile(ctx, path, flag)
					}
				} else {
					flocked(t, filepath.Join(dir, prunedFile+".lock"))
				}
				for hour := range 3 {
					time.Sleep(pruneEvery)
					want := 0
					if hanging && hour > 0 {
						want = 1
					}
					if n := l.calls.Running(); n != want {
						t.Errorf("hour %d: %d prunes under way, want %d", hour, n, want)
					}
					mustRelease(t, l, lease)
					lease = mustAcquire(t, l, request(fmt.Sprint(hour)))
					synctest.Wait()
					if n := l.calls.Running(); n != 1 {
						t.Errorf("hour %d: %d prunes after a grant, want 1", hour, n)
					}
				}
			})
		})
	}
}

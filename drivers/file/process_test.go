package file

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	tasks["count"] = countTask
	tasks["crash"] = crashTask
}

// wait tries until the lock is granted.
func wait(ctx context.Context, l *Locker, name, owner string) (driver.Lease, error) {
	req := driver.Request{Name: name, ID: driver.NewLeaseID(fmt.Sprintf("%d.%d", os.Getpid(), rand.Uint64())), Owner: owner, TTL: time.Minute}
	for {
		lease, err := l.TryAcquire(ctx, req)
		if !errors.Is(err, driver.ErrHeld) {
			return lease, err
		}
		time.Sleep(time.Duration(1+rand.IntN(5)) * time.Millisecond)
	}
}

const countEach = 25

// countTask adds to a number in a file. The sum is right only if the lock excludes others.
func countTask(dir string) error {
	l, err := New(dir)
	if err != nil {
		return err
	}
	defer l.Close(context.Background())
	ctx := context.Background()
	path := filepath.Join(dir, "count")
	for range countEach {
		lease, err := wait(ctx, l, "counter", "counter")
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(content))
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // gives a second holder time, if there is one
		if err := os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
			return err
		}
		if err := l.Release(ctx, lease); err != nil {
			return err
		}
	}
	return nil
}

func TestProcessesCount(t *testing.T) {
	t.Parallel()
	const processes = 6
	dir := t.TempDir()
	path := filepath.Join(dir, "count")
	write(t, path, "0")
	var wg sync.WaitGroup
	for range processes {
		cmd := child(t, "count", dir)
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("a child: %v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	content := must(os.ReadFile(path))
	if want := strconv.Itoa(processes * countEach); string(content) != want {
		t.Errorf("%d processes counted to %s, want %s", processes, content, want)
	}
}

// crashNames are the locks for which crashing and sound processes compete.
var crashNames = []string{"a", "b", "c"}

// crashTask acquires, renews and releases locks until it is killed. Its leases do not expire during
// the test, so no failure is a matter of timing.
func crashTask(dir string) error {
	l, err := New(dir)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return compete(context.Background(), l, dir, strconv.Itoa(os.Getpid()))
}

// compete acquires and releases locks until the context ends. The context interrupts no call, since
// that would leave an acquire in doubt. While it holds a lock it creates a marker file, which must
// not exist already, and stores the token.
func compete(until context.Context, l *Locker, dir, owner string) error {
	ctx := context.WithoutCancel(until)
	for until.Err() == nil {
		name := crashNames[rand.IntN(len(crashNames))]
		req := driver.Request{Name: name, ID: driver.NewLeaseID(owner + "." + strconv.FormatUint(rand.Uint64(), 16)), Owner: owner,
			TTL: time.Minute, Data: []byte(owner)}
		lease, err := l.TryAcquire(ctx, req)
		if errors.Is(err, driver.ErrHeld) {
			continue
		}
		if err != nil {
			return err
		}
		if err := hold(ctx, l, dir, lease); err != nil {
			return err
		}
	}
	return nil
}

func hold(ctx context.Context, l *Locker, dir string, lease driver.Lease) error {
	marker := filepath.Join(dir, lease.Name+".marker")
	f, err := os.OpenFile(marker, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("two holders at once: %w", err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, lease.Name+".tokens"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(log, "%020d\n", lease.Token); err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	_, renewed := l.Renew(ctx, lease)
	if err := os.Remove(marker); err != nil {
		return err
	}
	return errors.Join(renewed, l.Release(ctx, lease))
}

// TestKilled kills processes at any moment of their work, again and again. Records stay whole, and
// exclusion and the order of tokens hold.
func TestKilled(t *testing.T) {
	t.Parallel()
	const slots, kills = 3, 15
	dir := t.TempDir()
	l := mustNew(t, dir)

	ctx, stop := context.WithCancel(t.Context())
	var sound, crashing sync.WaitGroup
	for i := range 2 {
		sound.Go(func() {
			if err := compete(ctx, l, dir, "sound "+strconv.Itoa(i)); err != nil {
				t.Errorf("a sound process: %v", err)
			}
		})
	}
	for range slots {
		crashing.Go(func() {
			for range kills {
				killOne(t, l, dir)
			}
		})
	}
	crashing.Wait()
	stop()
	sound.Wait()

	for _, name := range crashNames {
		lease, err := wait(t.Context(), l, name, "the last")
		if err != nil {
			t.Errorf("after all: %v", err)
		}
		checkTokens(t, filepath.Join(dir, name+".tokens"), lease.Token)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "[^.]*.tmp")); len(left) > 0 { // .pruned.tmp may be under way
		t.Errorf("temporary files are left: %v", left)
	}
}

// killOne starts a crashing process, kills it, and frees what it held.
func killOne(t *testing.T, l *Locker, dir string) {
	t.Helper()
	cmd := startWhenReady(t, "crash", dir)
	time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond) // any moment
	if err := cmd.Process.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	if err := cmd.Wait(); err == nil || !killed(err) {
		t.Errorf("a crashing process ended by itself: %v", err)
	}
	dead := strconv.Itoa(cmd.Process.Pid)
	for _, name := range crashNames {
		r, err := l.Inspect(t.Context(), name)
		if err != nil {
			t.Errorf("after a kill: %v", err)
			return
		}
		if r.State == driver.StateHeld && r.Owner == dead { // no other process can take it now
			_ = os.Remove(filepath.Join(dir, name+".marker"))
			if err := l.BreakNow(t.Context(), name, driver.BreakAnybody()); err != nil {
				t.Errorf("after a kill: %v", err)
			}
		}
	}
}

// checkTokens checks that the tokens stored by holders rise.
func checkTokens(t *testing.T, path string, last uint64) {
	t.Helper()
	content := must(os.ReadFile(path))
	lines := strings.Fields(string(content))
	before := ""
	for _, line := range append(lines, fmt.Sprintf("%020d", last)) {
		if line <= before {
			t.Errorf("%s: token %s after %s", filepath.Base(path), line, before)
		}
		before = line
	}
	t.Logf("%s: %d grants", filepath.Base(path), len(lines))
}

package backendtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// envOther has a URL in a process that tries to acquire the lock there.
const envOther = "HOLDFAST_TEST_OTHER_PROCESS"

// What that process writes.
const (
	granted = "granted"
	refused = "refused"
)

// A driver whose locks more than one process can share keeps another process from a lock that this one holds. With a Reach wider
// than the truth, both would hold it.
func TestReach(t *testing.T) {
	for scheme, url := range Backends(driver.ReachMachine) {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			testReach(t, url(t))
		})
	}
}

func testReach(t *testing.T, url string) {
	l, err := driver.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	for {
		lease, err := acquire(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		answer := fromAnotherProcess(t, url)
		if _, err := l.Renew(t.Context(), lease); errors.Is(err, driver.ErrLost) {
			continue // the machine is slow, and the lease has ended: the answer says nothing
		} else if err != nil {
			t.Fatal(err)
		}
		if answer != refused {
			t.Errorf("this process holds the lock, and the request of another one was %s", answer)
		}
		return
	}
}

func acquire(ctx context.Context, l driver.Locker) (driver.Lease, error) {
	limits := l.Info().Limits
	ttl := max(time.Minute, limits.MinTTL)
	if limits.MaxTTL > 0 {
		ttl = min(ttl, limits.MaxTTL)
	}
	id := driver.NewLeaseID(fmt.Sprintf("00000000-0000-4000-8000-%012x", os.Getpid())) // Azure takes UUIDs only
	return l.TryAcquire(ctx, driver.Request{Name: "shared", ID: id, Owner: "a test", TTL: ttl})
}

// fromAnotherProcess returns what a process of its own writes, which tries to acquire the lock.
func fromAnotherProcess(t *testing.T, url string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), self)
	other.Env, other.Stderr = append(os.Environ(), envOther+"="+url), os.Stderr
	out, err := other.Output()
	if err != nil {
		t.Fatalf("the other process: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// beOther is what the other process does. If it is granted the lock, it releases it.
func beOther(ctx context.Context, url string) (answer string, err error) {
	l, err := driver.Open(ctx, url)
	if err != nil {
		return "", err
	}
	lease, err := acquire(ctx, l)
	switch {
	case err == nil:
		answer, err = granted, l.Release(ctx, lease)
	case errors.Is(err, driver.ErrHeld):
		answer, err = refused, nil
	}
	return answer, errors.Join(err, l.Close(ctx))
}

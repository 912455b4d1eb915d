package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func init() { tasks["namespace"] = namespaceTask }

// namespaceTask reads the clock and tries to acquire two locks: "held", which another process
// holds, and "expired", whose lease is over.
func namespaceTask(dir string) error {
	c, err := systemClock()
	if err != nil {
		return err
	}
	now, err := c.now()
	if err != nil {
		return err
	}
	l, err := New(dir)
	if err != nil {
		return err
	}
	defer l.Close(context.Background())
	fmt.Println(int64(now.Elapsed))
	for _, name := range []string{"held", "expired"} {
		_, err := l.TryAcquire(context.Background(), driver.Request{Name: name, ID: driver.NewLeaseID("second"), TTL: time.Minute})
		fmt.Println(name, errors.Is(err, driver.ErrHeld))
	}
	return nil
}

// Processes of other time namespaces share the clock, whatever offset their readings have. They
// respect a lease that has not expired and take over one that has. The clock is not
// CLOCK_MONOTONIC either.
func TestTimeNamespaces(t *testing.T) {
	t.Parallel()
	program := []string{"unshare", "--time"}
	if os.Geteuid() != 0 {
		program = append(program, "--user", "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), program[0],
		slices.Concat(program[1:], []string{"--boottime", "1", "true"})...).CombinedOutput(); err != nil {
		t.Skipf("this machine makes no time namespaces (%v: %s); TestClockOffset tests what does not need them", err, out)
	}
	for _, offsets := range []string{
		"--boottime 86400", "--boottime -10", "--monotonic 86400", "--monotonic -10", "--boottime 86400 --monotonic 3600", "--boottime 0",
	} {
		t.Run(offsets, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := mustNew(t, dir)
			mustAcquire(t, l, driver.Request{Name: "held", ID: driver.NewLeaseID("first"), TTL: time.Hour})
			mustAcquire(t, l, driver.Request{Name: "expired", ID: driver.NewLeaseID("first"), TTL: 10 * time.Millisecond})
			time.Sleep(20 * time.Millisecond)
			before, err := l.clock.now()
			if err != nil {
				t.Fatal(err)
			}
			inside := child(t, "namespace", dir)
			inside.Args = slices.Concat(program, strings.Fields(offsets), []string{inside.Path}, inside.Args[1:])
			if inside.Path, err = exec.LookPath(program[0]); err != nil {
				t.Fatal(err)
			}
			out, err := inside.CombinedOutput()
			if err != nil {
				t.Fatalf("the child: %v\n%s", err, out)
			}
			after, err := l.clock.now()
			if err != nil {
				t.Fatal(err)
			}
			var read time.Duration
			var held, expired bool
			if _, err := fmt.Sscanf(string(out), "%d\nheld %t\nexpired %t\n", &read, &held, &expired); err != nil {
				t.Fatalf("the child said %q: %v", out, err)
			}
			if read < before.Elapsed || read > after.Elapsed {
				t.Errorf("the clock reads %v there, here %v before and %v after", read, before.Elapsed, after.Elapsed)
			}
			if !held || expired {
				t.Errorf("there a running lease counts as held: %t, one that has ended: %t", held, expired)
			}
			if r, err := l.Inspect(t.Context(), "expired"); err != nil || r.State != driver.StateHeld || r.Remaining > time.Minute ||
				r.Remaining < 30*time.Second {
				t.Errorf("what was acquired there for 1m: %+v, error %v", r, err)
			}
		})
	}
}

// The clock is the time since boot, as /proc/uptime has it in the first time namespace, and not
// the time of day.
func TestClockIsTheTimeSinceBoot(t *testing.T) {
	t.Parallel()
	offset, err := clockOffset()
	if err != nil {
		t.Fatal(err)
	}
	c, err := systemClock()
	if err != nil {
		t.Fatal(err)
	}
	content := must(os.ReadFile("/proc/uptime"))
	now, err := c.now()
	if err != nil {
		t.Fatal(err)
	}
	seconds, _, _ := strings.Cut(string(content), " ")
	uptime, err := time.ParseDuration(seconds + "s")
	if err != nil {
		t.Fatal(err)
	}
	if off := now.Elapsed + offset - uptime; off < -time.Second || off > time.Minute {
		t.Errorf("the clock reads %v (offset %v), the machine is up for %v", now.Elapsed, offset, uptime)
	}
}

func TestClockOffset(t *testing.T) {
	for content, want := range map[string]time.Duration{
		"monotonic           0         0\nboottime            0         0\n":          0,
		"monotonic        3600         0\nboottime        86400       250\n":          24*time.Hour + 250,
		"monotonic           0         0\nboottime          -11 999999999\n":          -10*time.Second - 1,
		"boottime            1         2\nanother             3         4\n":          time.Second + 2,
		"monotonic           0         0\nboottime   2147483648         0\n":          2147483648 * time.Second,
		"monotonic  2147483648         0\nboottime  -2147483648 500000000\nx y z a b": -2147483648*time.Second + 500*time.Millisecond,
	} {
		if got, err := parseOffset(content); err != nil || got != want {
			t.Errorf("%q: offset %v, error %v; want %v", content, got, err, want)
		}
	}
	for _, content := range []string{"", "monotonic 0 0\n", "boottime\n", "boottime 1\n", "boottime x 0\n", "boottime 0 y\n"} {
		if got, err := parseOffset(content); err == nil {
			t.Errorf("%q: offset %v, want an error", content, got)
		}
	}
}

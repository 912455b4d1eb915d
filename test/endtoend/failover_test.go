//go:build unix

package endtoend

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// contention is how long the processes contend.
const contention = 60 * time.Second

// Eight processes add to one number under the lock while the primary of the replica set is killed
// (SIGKILL) repeatedly. No addition is lost, no two processes hold the lock at the same time, and
// the tokens rise.
func TestPrimaryKilledWhileProcessesCount(t *testing.T) {
	serverprocess.Long(t, "kills the primary beside many processes")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	dir := t.TempDir()
	var workers []worker
	for range 8 {
		workers = append(workers, start(t, "count", lockURL(t, rs.URI(), "counting"), rs.URI(), dir, "10s"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), contention)
	defer cancel()
	kills := killPrimaries(ctx, t, rs)
	for _, w := range workers {
		if err := w.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("a worker has ended: %v", err)
		}
	}
	added, granted := 0, 0
	for _, w := range workers {
		fields := w.expect("added")
		n, _ := strconv.Atoi(fields[0])
		added += n
		if n > 0 {
			granted++
		}
	}
	b, err := os.ReadFile(dir + "/counter")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b); got != strconv.Itoa(added) || added == 0 {
		t.Errorf("the number is %s, but %d was added", got, added)
	}
	grants := checkLog(t, dir+"/log")
	t.Logf("%d grants to %d processes, %d additions, %d primaries killed", grants, granted, added, kills)
}

// killPrimaries kills the primary and starts it again, repeatedly, until ctx ends, and at least three times.
func killPrimaries(ctx context.Context, t *testing.T, rs *mongotest.ReplicaSet) (kills int) {
	t.Helper()
	slow, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a busy machine restarts a server slowly
	defer cancel()
	for wait(ctx, 8*time.Second) || kills < 3 {
		if ctx.Err() != nil {
			wait(slow, 8*time.Second)
		}
		member, err := rs.Primary(slow)
		if err != nil {
			t.Fatalf("no primary after %d were killed: %v", kills, err)
		}
		if err := rs.Kill(member); err != nil {
			t.Fatalf("kill member %d: %v", member, err)
		}
		kills++
		wait(slow, 4*time.Second) // until another is elected
		if err := rs.Restart(slow, member); err != nil {
			t.Fatalf("restart member %d: %v", member, err)
		}
	}
	return kills
}

// wait reports whether it has waited for the whole duration.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// checkLog fails the test unless each "enter" is followed by its own "leave" and the tokens rise.
func checkLog(t *testing.T, path string) (grants int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	holder := ""
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		var event string
		var token uint64
		var pid int
		if _, err := fmt.Sscanf(line, "%s %d %d", &event, &token, &pid); err != nil {
			t.Fatalf("line %d: %q: %v", i+1, line, err)
		}
		entry := fmt.Sprint(token, " ", pid)
		switch event {
		case "enter":
			if holder != "" {
				t.Errorf("line %d: %s entered while %s held the lock", i+1, entry, holder)
			}
			if token <= last {
				t.Errorf("line %d: token %d after %d", i+1, token, last)
			}
			holder, last = entry, token
			grants++
		case "leave":
			if holder != entry {
				t.Errorf("line %d: %s left while %q held the lock", i+1, entry, holder)
			}
			holder = ""
		}
	}
	return grants
}

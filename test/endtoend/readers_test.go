//go:build unix

package endtoend

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Readers and writers share a lock while the primary of the replica set is killed (SIGKILL) repeatedly. At any
// instant any number of readers or one writer have it, the tokens rise, and both kinds get it.
func TestPrimaryKilledWhileOthersReadAndWrite(t *testing.T) {
	serverprocess.Long(t, "kills the primary beside many processes")
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{})
	check := locktest.NewReaders(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan struct{}) // when no further primary is killed
	var wg sync.WaitGroup
	for p := range uint64(3) {
		url := strings.Replace(rs.URI(), "/?", "/endtoend_locks?collection=reading&", 1)
		c, err := holdfast.Open(t.Context(), url, holdfast.WithTTL(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
		for i := range uint64(4) {
			rng := rand.New(rand.NewPCG(p, i))
			wg.Go(func() { readOrWrite(t, c, check, rng, ended) })
		}
	}
	kills := killPrimaries(ctx, t, rs)
	close(ended)
	wg.Wait()
	if check.Reads == 0 || check.Writes == 0 || check.Most < 2 {
		t.Errorf("%d readers, at most %d of them at once, and %d writers", check.Reads, check.Most, check.Writes)
	}
	t.Logf("%d readers, at most %d of them at once, %d writers, %d primaries killed", check.Reads, check.Most, check.Writes, kills)
}

// readOrWrite has the lock again and again, one time in four as a writer, until ended is closed. A loss or a failed release is
// no error: the primary was killed.
func readOrWrite(t *testing.T, c *holdfast.Client, check *locktest.Readers, rng *rand.Rand, ended <-chan struct{}) {
	for {
		enter, opts := check.Read, []holdfast.Option{holdfast.WithShared()}
		if rng.IntN(4) == 0 {
			enter, opts = check.Write, nil
		}
		_ = c.Do(t.Context(), "cache", func(ctx context.Context) error {
			token, _ := holdfast.TokenFromContext(ctx)
			enter(ctx, token)
			wait(ctx, time.Duration(rng.IntN(200))*time.Millisecond)
			return nil
		}, opts...)
		select {
		case <-ended:
			return
		case <-t.Context().Done():
			return
		default:
		}
	}
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

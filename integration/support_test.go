package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
	_ "github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Tests spend most of their time waiting, since no Azure lease is shorter than 15 s. So more of
// them run at the same time than there are processors, unless -parallel sets a number. Many more would
// start so many servers at once that requests exceed their time limits.
func TestMain(m *testing.M) {
	serverprocess.Parallel(10)
	env.Main(m)
}

// waitLimit is the time limit of everything that a test waits for. It allows for a slow machine,
// and for Azure, where others may have to wait for up to a minute after a lease has ended.
const waitLimit = 2 * time.Minute

// wantOver checks that a hold is over. Err decides by the clock, even if this process was paused and its
// timers are late.
func wantOver(t *testing.T, h *holdfast.Hold) {
	t.Helper()
	if h.Err() == nil {
		t.Error("the hold is still live after its deadline")
	}
}

// wantRefused checks the cause of a hold's end: the answer to a renewal, not the deadline. How long before the deadline the answer came
// depends on the machine.
func wantRefused(t *testing.T, cause error) {
	t.Helper()
	if !errors.Is(cause, holdfast.ErrLost) || strings.Contains(cause.Error(), "not renewed in time") {
		t.Errorf("the hold ended with %v, want a loss by the answer to a renewal", cause)
	}
}

// open makes a client that is shut down at the end of the test.
func open(t *testing.T, url string, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	client, err := openInTime(testContext(t), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = client.Shutdown(ctx) // the servers may be in any state
	})
	return client
}

// openInTime tries again until the backend answers: after a fault, or while the machine stands still, another member may just be elected.
func openInTime(ctx context.Context, url string, opts []holdfast.ClientOption) (client *holdfast.Client, err error) {
	for {
		if client, err = holdfast.Open(ctx, url, opts...); err == nil || errors.Is(err, driver.ErrInvalid) || driver.Lasting(err) {
			return client, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var eventually = locktest.Eventually

// counter is a number that clients increment under a lock, in two steps. An increment is lost if
// two clients are ever inside at the same time.
type counter struct {
	t *testing.T

	mu     sync.Mutex
	value  int
	added  int    // how many increments clients have made
	inside uint64 // the token of the client that is inside, or 0
	last   uint64 // the highest token so far
	grants int
}

// contend starts clients that open the URL and increment the counter until the test calls stop,
// which waits until all have ended.
func (c *counter) contend(url string, clients int, opts ...holdfast.ClientOption) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() { c.runClient(ctx, url, opts) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// wantNoGrant makes one attempt, with a time limit.
func wantNoGrant(t *testing.T, client *holdfast.Client, name string, limit time.Duration, without string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if h, err := client.TryLock(ctx, name); err == nil {
		t.Errorf("token %d was granted without %s", h.Token(), without)
	}
}

// countDuring has eight clients increment a counter while a fault happens several times, and between these times.
func countDuring(t *testing.T, url string, ttl time.Duration, times int, fault func(*counter)) {
	t.Helper()
	c := &counter{t: t}
	stop := c.contend(url, 8, holdfast.WithTTL(ttl))
	defer stop()
	for range times {
		c.awaitIncrements(20)
		fault(c)
	}
	c.awaitIncrements(20)
	stop()
	c.check()
}

func (c *counter) runClient(ctx context.Context, url string, opts []holdfast.ClientOption) {
	client, err := openInTime(ctx, url, opts)
	if err != nil {
		if ctx.Err() == nil {
			c.t.Error(err)
		}
		return
	}
	for ctx.Err() == nil {
		// A lost hold or an unreachable backend is expected here; the client tries again.
		_ = client.Do(ctx, "counter", c.increment)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitLimit)
	defer cancel()
	if err := client.Shutdown(ctx); err != nil {
		c.t.Logf("shutdown: %v", err) // the servers may be in any state
	}
}

// increment runs under the lock.
func (c *counter) increment(ctx context.Context) error {
	token, ok := holdfast.TokenFromContext(ctx)
	if !ok {
		return errors.New("no token")
	}
	value := c.enter(token)
	select {
	case <-time.After(5 * time.Millisecond):
		c.leave(token, func() { c.value, c.added = value+1, c.added+1 })
		return nil
	case <-ctx.Done():
		c.leave(token, func() {})
		return context.Cause(ctx)
	}
}

func (c *counter) enter(token uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside != 0 {
		c.t.Errorf("token %d entered while token %d was inside", token, c.inside)
	}
	if token <= c.last {
		c.t.Errorf("token %d was granted after token %d", token, c.last)
	}
	c.inside, c.last = token, max(token, c.last)
	c.grants++
	return c.value
}

func (c *counter) leave(token uint64, do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	if c.inside == token {
		c.inside = 0
	}
}

// awaitIncrements waits until n more increments have been made.
func (c *counter) awaitIncrements(n int) {
	c.t.Helper()
	start := c.increments()
	eventually(c.t, fmt.Sprint(n, " increments"), func() bool { return c.increments() >= start+n })
}

func (c *counter) increments() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.added
}

// check compares the counter with the increments made. All clients must have ended.
func (c *counter) check() {
	c.t.Helper()
	if c.value != c.added || c.added == 0 {
		c.t.Errorf("the counter is %d after %d increments", c.value, c.added)
	}
	c.t.Logf("%d grants, %d increments, none lost", c.grants, c.added)
}

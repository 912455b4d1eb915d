package integration

import (
	"context"
	"errors"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/integration/env"
)

// Tests spend their time waiting, since no Azure lease is shorter than 15 s: more of
// them run at the same time than there are processors, unless -parallel says how many.
func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "24") // fails only for a flag that is unknown
	}
	env.Main(m)
}

// patience bounds what is waited for: a machine may be slow, and an Azure lease can
// keep others waiting for a minute after its end.
const patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open makes a client that is shut down at the test's end.
func open(t *testing.T, url string, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	client, err := holdfast.Open(within(t), url, opts...)
	env.Check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = client.Shutdown(ctx) // the servers may be in any state
	})
	return client
}

// eventually waits for a condition.
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// counter is a number that clients add to under a lock, in the way that loses
// additions if two of them are ever in at once.
type counter struct {
	t *testing.T

	mu     sync.Mutex
	number int
	added  int // additions that clients made
	inside uint64
	last   uint64 // the highest token that was in
	tokens int
}

// contend has clients of their own at a URL add to the number until the test calls
// stop, which returns when all have ended.
func (c *counter) contend(url string, clients int, opts ...holdfast.ClientOption) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() { c.client(ctx, url, opts) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func (c *counter) client(ctx context.Context, url string, opts []holdfast.ClientOption) {
	client, err := holdfast.Open(ctx, url, opts...)
	if err != nil {
		c.t.Error(err)
		return
	}
	for ctx.Err() == nil {
		// Between two tries a loss, or a backend that cannot be reached for a while,
		// is nothing that this counter minds.
		_ = client.Do(ctx, "counter", c.add)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := client.Shutdown(ctx); err != nil {
		c.t.Logf("shutdown: %v", err) // the servers may be in any state
	}
}

// add is what runs under the lock.
func (c *counter) add(ctx context.Context) error {
	token, ok := holdfast.TokenFromContext(ctx)
	if !ok {
		return errors.New("no token")
	}
	number := c.enter(token)
	select {
	case <-time.After(5 * time.Millisecond):
		c.leave(token, func() { c.number, c.added = number+1, c.added+1 })
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
		c.t.Errorf("token %d entered while %d was in", token, c.inside)
	}
	if token <= c.last {
		c.t.Errorf("token %d after %d", token, c.last)
	}
	c.inside, c.last = token, max(token, c.last)
	c.tokens++
	return c.number
}

func (c *counter) leave(token uint64, do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	if c.inside == token {
		c.inside = 0
	}
}

// more waits until n more additions have been made.
func (c *counter) more(n int) {
	c.t.Helper()
	start := c.additions()
	for end := time.Now().Add(patience); c.additions() < start+n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%d additions in %s, want %d", c.additions()-start, patience, n)
		}
	}
}

func (c *counter) additions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.added
}

// check is for when all clients have ended.
func (c *counter) check() {
	c.t.Helper()
	if c.number != c.added || c.added == 0 {
		c.t.Errorf("the number is %d after %d additions", c.number, c.added)
	}
	c.t.Logf("%d grants, %d additions, none lost", c.tokens, c.added)
}

package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/authority"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// fakeOptions are those of a client of fake servers.
var fakeOptions = goredis.Options{MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: time.Minute, ReadTimeout: time.Minute}

// clusterOf is a cluster with some fake servers.
func clusterOf(t *testing.T, timeout time.Duration, seeds ...string) *cluster {
	t.Helper()
	c := newCluster(fakeOptions, seeds, timeout)
	t.Cleanup(func() { _ = c.close() })
	return c
}

// age makes the last load so old, or so new, that the layout may be loaded again, or not.
func (c *cluster) age(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried = time.Now().Add(-by)
}

// loaded waits until the layout is not being loaded.
func (c *cluster) loaded() {
	c.mu.Lock()
	l := c.loading
	c.mu.Unlock()
	if l != nil {
		<-l.done
	}
}

// An answer that shows that the layout has changed has it loaded again with the next request, but not at once if it was loaded just now.
func TestLayoutIsLoadedAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err   error
		loads int64
	}{
		{redisError("MOVED 7 127.0.0.1:1"), 2}, {redisError("CLUSTERDOWN the cluster is down"), 2}, {io.EOF, 2},
		{redisError("READONLY a replica"), 2}, {redisError("MASTERDOWN no link"), 2}, {cas.ErrNotSafe, 2},
		{nil, 1}, {goredis.Nil, 1}, {redisError("ERR other"), 1}, {redisError("ASK 7 127.0.0.1:1"), 1},
	} {
		var loads atomic.Int64
		c := clusterOf(t, time.Minute, fakeNode(t, func(own string) string { loads.Add(1); return ownedBy(own, slots) }))
		from, err := c.primaryOf(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		for _, when := range []struct {
			age   time.Duration
			loads int64
		}{{-time.Hour, 1}, {loadPause, test.loads}} {
			c.age(when.age)
			c.heed(from, test.err)
			_, err := c.primaryOf(t.Context(), "k")
			c.loaded()
			if err != nil || loads.Load() != when.loads {
				t.Errorf("%v, loaded %v ago: %d loads, %v", test.err, when.age, loads.Load(), err)
			}
		}
	}
}

// When no server says what the layout is, the last one serves, unless it has to be fresh.
func TestOldLayoutServes(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	var failed atomic.Int64
	c := clusterOf(t, time.Minute, fakeNode(t, func(own string) string {
		if fails.Load() {
			failed.Add(1)
			return "-ERR not now\r\n"
		}
		return ownedBy(own, slots)
	}))
	if _, err := c.primaryOf(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	fails.Store(true)
	c.distrust()
	for range 2 {
		before := failed.Load()
		c.age(loadPause)
		began := time.Now()
		_, err := c.primaryOf(t.Context(), "k")
		c.loaded()
		after := failed.Load()
		if err != nil || after == before {
			t.Errorf("%v, tried %d times", err, after-before)
		}
		_, err = c.primaryOf(t.Context(), "k")
		c.loaded()
		if err != nil || failed.Load() > after && time.Since(began) < loadPause {
			t.Errorf("%v, or tried again within %v", err, time.Since(began))
		}
	}
	if _, _, err := c.primaries(t.Context()); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("a fresh layout: %v", err)
	}
	fails.Store(false)
	if _, _, err := c.primaries(t.Context()); err != nil {
		t.Error(err)
	}
}

// silent is a server that does not answer.
func silent(t *testing.T) (addr string) {
	t.Helper()
	return fakeServer(t, func(string, []string) string { return "" })
}

// Servers that hang, or are away, do not keep the others from being asked. The error names them all.
func TestServersThatHangDelayNoOther(t *testing.T) {
	t.Parallel()
	good := fakeNode(t, func(own string) string { return ownedBy(own, slots) })
	const away, away2 = "127.0.0.1:1", "127.0.0.1:2"
	if _, err := clusterOf(t, 4*time.Second, silent(t), away, silent(t), good).primaryOf(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	hangs := silent(t)
	_, err := clusterOf(t, 4*time.Second, away, hangs, away2).primaryOf(t.Context(), "k")
	for _, addr := range []string{away, hangs, away2} {
		if err == nil || !strings.Contains(err.Error(), addr) {
			t.Errorf("none answers: %v, want %s", err, addr)
		}
	}
}

// A server that refuses the login does not make the error a lasting one while another is away.
func TestErrorOfTheLayout(t *testing.T) {
	t.Parallel()
	refuses := fakeNode(t, func(string) string { return "-NOPERM no right\r\n" })
	for lasting, seeds := range map[bool][]string{false: {"127.0.0.1:1", refuses}, true: {refuses, refuses}} {
		if _, err := clusterOf(t, time.Minute, seeds...).primaryOf(t.Context(), "k"); driver.Lasting(classify(err)) != lasting {
			t.Errorf("lasting, want %v: %v", lasting, err)
		}
	}
}

// When all known primaries have fallen silent, the seeds are asked.
func TestKnownPrimariesFallSilent(t *testing.T) {
	t.Parallel()
	gone := []string{silent(t), silent(t), silent(t)}
	var loads atomic.Int64
	c := clusterOf(t, 4*time.Second, fakeNode(t, func(own string) string {
		if loads.Add(1) == 1 {
			return ownedByAll(gone...)
		}
		return ownedBy(own, slots)
	}))
	for range 2 {
		if _, err := c.current(t.Context(), true); err != nil {
			t.Error(err)
		}
	}
}

// A server that never shakes hands does not keep the others from being asked, although the dialer of go-redis does not end with its
// context.
func TestClusterWithAServerThatNeverShakesHands(t *testing.T) {
	t.Parallel()
	ca := authority.New(t)
	var secure *front
	secure = startFront(t, ca, tls.NoClientCert, fakeNode(t, func(string) string { return ownedBy(secure.addr, slots) }))
	l := openAt(t, "rediss://"+silent(t)+","+secure.addr+"/?cluster=true&commandTimeout=4s&caFile="+ca.File, unprobed)
	if _, err := l.store.servers.primaryOf(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

// While the layout is loaded again, the last one serves: a server that hangs delays no request to another one.
func TestOldLayoutServesWhileItIsLoaded(t *testing.T) {
	t.Parallel()
	var loads atomic.Int64
	c := clusterOf(t, time.Minute, fakeNode(t, func(own string) string {
		if loads.Add(1) > 1 {
			<-t.Context().Done()
		}
		return ownedBy(own, slots)
	}))
	if _, err := c.primaryOf(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	c.age(loadPause)
	c.distrust()
	_ = locktest.Within(t, 10*time.Second, "primaryOf", func() error {
		_, err := c.primaryOf(t.Context(), "k")
		return err
	})
	locktest.Eventually(t, "the layout is loaded again", func() bool { return loads.Load() > 1 })
}

// A key that no primary has fails, and the layout is asked for again. A list of all keys fails.
func TestKeyWithoutAPrimary(t *testing.T) {
	t.Parallel()
	var loads atomic.Int64
	c := clusterOf(t, time.Minute, fakeNode(t, func(own string) string {
		if loads.Add(1) < 3 {
			return ownedBy(own, slotOf("k"))
		}
		return ownedBy(own, slotOf("k")+1)
	}))
	without := func() {
		t.Helper()
		if _, err := c.primaryOf(t.Context(), "k"); err == nil {
			t.Error("a key without a primary has one")
		}
	}
	without()
	if _, _, err := c.primaries(t.Context()); err == nil {
		t.Error("a list of the keys that have a primary would pass for one of all")
	}
	without()
	c.age(loadPause)
	if _, err := c.primaryOf(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

// Each primary has its own number of replicas. One that the layout lacks may have as many as any other.
func TestReplicasOf(t *testing.T) {
	t.Parallel()
	const primaries = "a :1@1 master - 0 0 1 connected 0-5\nb :2@2 master - 0 0 1 connected 6-9\n"
	c := clusterOf(t, time.Minute)
	want := func(what string, a, b, other int) {
		t.Helper()
		got := [3]int{}
		for i, addr := range []string{"h:1", "h:2", "h:3"} {
			got[i] = c.replicasOf(c.client(addr)).get()
		}
		if got != [3]int{a, b, other} {
			t.Errorf("%s: %v, want %v", what, got, [3]int{a, b, other})
		}
	}
	load := func(nodes string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.replace(&layout{ids: map[string]string{"a": "h:1", "b": "h:2"}, nodes: parseNodes(primaries + nodes),
			primaries: []string{"h:1", "h:2"}})
	}
	load("c :3@3 slave b 0 0 1 connected\nd :4@4 slave,fail b 0 0 1 connected\n")
	want("as the cluster says", 0, 2, 2)
	c.replicasOf(c.client("h:1")).saw(3)
	c.replicasOf(c.client("h:2")).saw(1)
	want("as the primaries say", 3, 2, 2)
	c.replicasOf(c.client("h:1")).saw(1)
	load("")
	want("after some were forgotten", 1, 1, 1)
	for _, addr := range []string{"h:1", "h:2"} {
		c.replicasOf(c.client(addr)).saw(0)
	}
	const down = "d :4@4 master,fail - 0 0 1 disconnected\ne :5@5 slave,fail d 0 0 1 disconnected\n"
	load("c :3@3 slave b 0 0 1 connected\n" + down)
	want("those that are down may be of the shard that has fewer", 1, 1, 1)
	load(down)
	want("no shard has fewer", 0, 0, 0)
}

// A layout that has to be fresh is not that of a load which began before it was asked for.
func TestFreshLayout(t *testing.T) {
	t.Parallel()
	const before, after = "127.0.0.1:1", "127.0.0.1:2"
	began, goOn := make(chan struct{}), make(chan struct{})
	var loads atomic.Int64
	c := clusterOf(t, time.Minute, fakeNode(t, func(string) string {
		if loads.Add(1) > 1 {
			return ownedBy(after, slots)
		}
		close(began)
		<-goOn
		return ownedBy(before, slots)
	}))
	var calls sync.WaitGroup
	calls.Go(func() {
		if owner, err := c.primaryOf(t.Context(), "k"); err != nil || owner.Options().Addr != before {
			t.Errorf("%v, %v", owner, err)
		}
	})
	<-began
	calls.Go(func() {
		if all, _, err := c.primaries(t.Context()); err != nil || all[0].Options().Addr != after {
			t.Errorf("%v, %v", all, err)
		}
	})
	time.Sleep(100 * time.Millisecond) // so that the second call waits
	close(goOn)
	calls.Wait()
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// The server to which a part of the keys moves is no primary so far. Its client stays while a call may use it, and no longer.
func TestClientOfAnImportingServer(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"in use": false, "after the calls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exporting := fakeNode(t, func(own string) string { return ownedBy(own, slots) })
			importing := fakeNode(t, func(string) string { return ownedBy(exporting, slots) })
			c := clusterOf(t, time.Minute, exporting)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			from, err := c.primaryOf(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			to, asking := c.heed(from, redisError("ASK 7 "+importing))
			if to == nil || to.Options().Addr != importing || !asking {
				t.Fatal(to, asking)
			}
			if gone {
				c.mu.Lock()
				c.timeout = 50 * time.Millisecond // the requests for the layout need a longer one
				c.replace(c.layout)
				c.mu.Unlock()
				for !errors.Is(to.Ping(ctx).Err(), goredis.ErrClosed) && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				if ctx.Err() != nil {
					t.Error("the client is not closed")
				}
				return
			}
			if _, _, err := c.primaries(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // in which it could be closed
			if err := to.Ping(ctx).Err(); err != nil {
				t.Errorf("while it is used: %v", err)
			}
			if err := c.close(); err != nil {
				t.Error(err)
			}
			if err := to.Ping(ctx).Err(); !errors.Is(err, goredis.ErrClosed) || ctx.Err() != nil {
				t.Errorf("after the end: %v, %v", err, ctx.Err())
			}
		})
	}
}

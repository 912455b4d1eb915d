package kubernetes

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// openWith opens a Locker on a server with a configuration.
func openWith(t *testing.T, config *rest.Config) *Locker {
	t.Helper()
	l, err := New(t.Context(), config, kubernetestest.Namespace, onlyReads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

// A token that was replaced in its file is used at once. One that is refused is tried twice, and no more.
func TestRotatedToken(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	config := configFor(server.Host())
	config.BearerToken, config.BearerTokenFile = "", filepath.Join(t.TempDir(), "token")
	rotate := func(token string) {
		if err := os.WriteFile(config.BearerTokenFile, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rotate(kubernetestest.Token)
	l := openWith(t, config)
	lease := acquire(t, l, "n", "a", 30*time.Second)
	server.SetToken("another-secret")
	rotate("another-secret")
	lease, err := l.Renew(t.Context(), lease)
	if err != nil {
		t.Fatalf("after the token was replaced: %v", err)
	}
	server.SetToken("a-third-secret")
	before := server.Requests("get")
	if _, err := l.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrDenied) || server.Requests("get") != before+2 {
		t.Errorf("with an old token: %v after %d requests", err, server.Requests("get")-before)
	}
	rotate("a-third-secret")
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
}

// Every request is counted, also those for which a call makes more than one, and watches.
func TestCounted(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	var sent atomic.Int64
	d, _ := driver.Describe("kubernetes:")
	counted, err := d.OpenCounted(t.Context(), server.URL(t), func() { sent.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	l, _ := counted.(*Locker)
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	acquire(t, l, "n", "a", 30*time.Second)
	woken := make(chan struct{}, 100)
	stop := l.Wake("n", "", func(driver.Wakeup) { woken <- struct{}{} })
	<-woken // the watch is in effect
	stop()
	allow := server.Deny("get")
	if _, err := l.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrDenied) {
		t.Error(err)
	}
	allow()
	server.SetToken("another-secret")
	if _, err := l.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrDenied) {
		t.Error(err)
	}
	came := 0
	for _, verb := range []string{"get", "list", "create", "patch", "watch", "readyz"} {
		n := server.Requests(verb)
		if came += n; n == 0 {
			t.Errorf("there was no %s", verb)
		}
	}
	if int(sent.Load()) != came {
		t.Errorf("%d requests were counted, and %d came", sent.Load(), came)
	}
}

// A server that has just started refuses everything. That is no denial, and waiters and holders ride it out.
func TestStartingServer(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	clock := locktest.NewClock()
	began := clock.Now()
	l := open(t, server.URL(t), func(c *settings) { c.elapsed = func() time.Duration { return clock.Now().Sub(began) } })
	lease := acquire(t, l, "n", "a", 300*time.Second)
	server.SetStarting(true)
	if _, err := l.Renew(t.Context(), lease); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("a renewal: %v", err)
	}
	if _, err := try(t, l, "m", "b", 30*time.Second); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("an acquisition: %v", err)
	}
	server.SetStarting(false)
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Error(err)
	}
	server.SetStarting(true)
	for _, want := range []bool{false, true} { // nothing starts for so long: the rights were taken away
		if _, err := l.Inspect(t.Context(), "n"); errors.Is(err, driver.ErrDenied) != want {
			t.Errorf("a denial: %v, want %v", err, want)
		}
		clock.Advance(2 * maxStart)
	}
	server.SetStarting(false)
	if _, err := l.Inspect(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	before := server.Requests("get")
	server.Deny("get")
	if _, err := l.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrDenied) || server.Requests("get") != before+2 {
		t.Errorf("without rights: %v after %d requests", err, server.Requests("get")-before)
	}
}

// A right that is missing is a denial after a minute, also if /readyz is refused too and others are granted all the while. What was
// refused long ago does not count.
func TestMissingRightAndReadyz(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	clock := locktest.NewClock()
	began := clock.Now()
	l := open(t, server.URL(t), func(c *settings) { c.elapsed = func() time.Duration { return clock.Now().Sub(began) } })
	acquire(t, l, "n", "a", 30*time.Second)
	server.SetFaults(func(r kubernetestest.Request) kubernetestest.Fault {
		if r.Verb == "readyz" {
			return kubernetestest.Fault{Status: http.StatusForbidden}
		}
		return kubernetestest.Fault{}
	})
	// An acquisition reads and writes; it would repeat what is no denial.
	reads := func() error { _, err := l.store.Get(t.Context(), "n"); return err }
	acquires := func() error {
		v, err := l.store.Get(t.Context(), "n")
		if err == nil {
			_, err = l.store.Put(t.Context(), "n", v.Data, v.Version)
		}
		return err
	}
	refused := func(call func() error, after time.Duration, want bool) {
		t.Helper()
		clock.Advance(after)
		if err := call(); err == nil || errors.Is(err, driver.ErrDenied) != want {
			t.Errorf("a denial: %v, want %v", err, want)
		}
	}
	allowPatch := server.Deny("patch")
	refused(acquires, 0, false)
	refused(acquires, maxStart/2, false)
	refused(acquires, 2*maxStart, true)
	allowGet := server.Deny("get")
	refused(reads, 0, false) // another right
	allowGet()
	refused(acquires, 0, true)
	refused(acquires, 2*forget, false)
	refused(acquires, 2*maxStart, true)
	allowPatch()
	if err := acquires(); err != nil {
		t.Error(err)
	}
	server.Deny("patch")
	refused(acquires, 0, false)
}

// network is connections that can die without a word, as those of a router that has forgotten them.
type network struct {
	mu    sync.Mutex
	conns []*mortal
}

type mortal struct {
	net.Conn
	dead, closed chan struct{}
	die, end     func()
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	m := &mortal{Conn: c, dead: make(chan struct{}), closed: make(chan struct{})}
	m.die, m.end = sync.OnceFunc(func() { close(m.dead) }), sync.OnceFunc(func() { close(m.closed) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, m)
	return m, nil
}

// kill makes the present connections die, and returns how many there were.
func (n *network) kill() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.die()
	}
	return len(n.conns)
}

func (c *mortal) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

func (c *mortal) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.isDead() && !errors.Is(err, net.ErrClosed) {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *mortal) Write(b []byte) (int, error) {
	if c.isDead() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *mortal) Close() error {
	c.end()
	return c.Conn.Close()
}

// Connections that have all died silently cost one request its time limit, and not each of them one.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	config, n := configFor(server.Host()), &network{}
	config.Dial = n.dial
	l := openWith(t, config)
	lease := acquire(t, l, "n", "a", 60*time.Second)
	resume := server.Stall("n")
	var all sync.WaitGroup
	before := server.Requests("get")
	for range 8 { // requests that are under way together need as many connections
		all.Go(func() {
			if _, err := l.Inspect(t.Context(), "n"); err != nil {
				t.Error(err)
			}
		})
	}
	for server.Requests("get") < before+8 {
		time.Sleep(time.Millisecond)
	}
	resume()
	all.Wait()
	if n.kill() < 8 {
		t.Fatal("there are few connections")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := l.Renew(ctx, lease); err == nil || driver.OutcomeKnown(err) {
		t.Fatalf("through a dead connection: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second) // less than the time limit of a call
	defer cancel()
	if _, err := l.Renew(ctx, lease); err != nil {
		t.Errorf("after dead connections: %v", err)
	}
}

// An API server that refuses what is too much for it is not asked again before the time that it names.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	lease := acquire(t, l, "n", "a", 30*time.Second)
	var mu sync.Mutex
	var came []time.Time
	server.SetFaults(func(kubernetestest.Request) kubernetestest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if came = append(came, time.Now()); len(came) == 1 {
			return kubernetestest.Fault{Status: http.StatusTooManyRequests, RetryAfter: 1}
		}
		return kubernetestest.Fault{}
	})
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if pause := came[1].Sub(came[0]); pause < 900*time.Millisecond {
		t.Errorf("the next request came after %v", pause)
	}
}

// However long a server asks for, requests wait no longer than a lease can do without a renewal, and no longer than their context.
func TestHold(t *testing.T) {
	for header, c := range map[string]struct {
		status int
		want   time.Duration
	}{
		"1": {429, time.Second}, "3600": {503, longestHold}, "99999999999999999999": {429, 0}, "-1": {429, 0}, "": {429, 0},
		"Sat, 28 Nov 2026 19:10:58 GMT": {503, 0}, "9000000000000000000": {429, longestHold}, "5": {200, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var h hold
			h.note(httpstore.Answer{Status: c.status, Header: http.Header{"Retry-After": {header}}})
			h.note(httpstore.Answer{Status: 429, Header: http.Header{"Retry-After": {"0"}}})
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := h.wait(ended); (err != nil) != (c.want > 0) {
				t.Errorf("%s: with an ended context: %v", header, err)
			}
			began := time.Now()
			if err := h.wait(t.Context()); err != nil || time.Since(began) != c.want {
				t.Errorf("%s: waited %v, want %v, %v", header, time.Since(began), c.want, err)
			}
		})
	}
}

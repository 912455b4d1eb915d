package rivals

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// ttl is how long a lock of a holder that was killed stays, where a rival has such a time.
const ttl = 30 * time.Second

// taken is a lock that is held. lost begins to keep it, and returns what is closed when the holder is notified that it has lost it.
type taken struct {
	lost    func() <-chan struct{}
	release func(context.Context) error
}

// rivalIn is a way to have one holder at a time in a store.
type rivalIn struct {
	// take connects to a server. What it returns waits for the lock.
	take func(ctx context.Context, at string) (func(context.Context) (taken, error), error)
	// try takes the lock without waiting. It is needed for twoHolders alone.
	try func(ctx context.Context, at string) error
	// lose takes the lock from its holder, as an operator would.
	lose func(ctx context.Context, at string) error
}

// comparison is one of several rivals on one store.
type comparison struct {
	names  []string
	rivals map[string]rivalIn
	start  func(b *testing.B) string // returns the address of a new server
	url    func(at string) string    // that of Holdfast for an address
}

// comparisons are those of the benchmarks of these names.
var comparisons = map[string]*comparison{"BenchmarkRedisRivals": redisRivals, "BenchmarkEtcdRivals": etcdRivals,
	"BenchmarkMySQLRivals": mysqlRivals}

// holdfastOn is Holdfast on a store.
func holdfastOn(url func(at string) string) func(context.Context, string) (func(context.Context) (taken, error), error) {
	return func(ctx context.Context, at string) (func(context.Context) (taken, error), error) {
		c, err := holdfast.Open(ctx, url(at), holdfast.WithTTL(ttl), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (taken, error) {
			h, err := c.Lock(ctx, name)
			if err != nil {
				return taken{}, err
			}
			return taken{func() <-chan struct{} { return h.Context().Done() }, h.Release}, nil
		}, nil
	}
}

// hold is the other process of a benchmark.
func (c *comparison) hold(rival, at string) error {
	ctx := context.Background()
	take, err := c.rivals[rival].take(ctx, at)
	if err != nil {
		return err
	}
	got, err := take(ctx)
	if err != nil {
		return err
	}
	fmt.Println("held")
	<-got.lost()
	return nil
}

// run prints one table.
func (c *comparison) run(b *testing.B) {
	b.Helper()
	ctx := b.Context()
	row := map[string][]string{}
	var mu sync.Mutex
	add := func(n, text string) { mu.Lock(); defer mu.Unlock(); row[n] = append(row[n], text) }
	take, took := map[string]func(context.Context) (taken, error){}, map[string][]time.Duration{}
	for _, n := range c.names {
		at := c.start(b)
		if n == "Holdfast" {
			settle(b, c.url(at))
		}
		var err error
		if take[n], err = c.rivals[n].take(ctx, at); err != nil {
			b.Fatal(n, err)
		}
	}
	for i := range pairs + warmUp { // one after another, so that noise concerns all
		for _, n := range c.names {
			begin := time.Now()
			got, err := take[n](ctx)
			if err == nil {
				err = got.release(ctx)
			}
			if err != nil {
				b.Fatal(n, err)
			}
			if i >= warmUp {
				took[n] = append(took[n], time.Since(begin))
			}
		}
	}
	for _, n := range c.names {
		slices.Sort(took[n])
		add(n, took[n][len(took[n])/2].Round(10*time.Microsecond).String())
	}
	var all sync.WaitGroup
	for _, n := range c.names {
		all.Go(func() {
			server := c.start(b)
			if n == "Holdfast" {
				settle(b, c.url(server))
			}
			kind := b.Name() + "/" + n
			holders, waiters := newMeter(b, server), newMeter(b, server)
			holder := start(b, kind, holders.listener.Addr().String())
			<-holder.held
			waiter := start(b, kind, waiters.listener.Addr().String())
			time.Sleep(5 * time.Second)
			h, w := holders.sent.Load(), waiters.sent.Load()
			time.Sleep(time.Minute)
			add(n, fmt.Sprint(holders.sent.Load()-h))
			add(n, fmt.Sprint(waiters.sent.Load()-w))
			holder.kill()
			add(n, after(waiter.held, time.Now()))
			time.Sleep(2 * time.Second)
			begin := time.Now()
			if err := c.rivals[n].lose(ctx, server); err != nil {
				b.Error(n, err)
			}
			add(n, after(waiter.lost, begin))
			waiter.kill()
		})
	}
	all.Wait()
	fmt.Println("| | acquire + release | sent in a minute, holder | waiter | take-over after kill -9 | notified of a loss after |")
	for _, n := range c.names {
		fmt.Println("|", n, "|", strings.Join(row[n], " | "), "|")
	}
}

// settle opens a store until it counts as trusted: on a young one, programs go on racing conditional writes.
func settle(b *testing.B, url string) {
	b.Helper()
	for range 50 {
		l, err := driver.Open(b.Context(), url)
		if err == nil {
			err = l.Close(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// meter is a proxy that counts what programs send.
type meter struct {
	listener net.Listener
	sent     atomic.Int64
}

func newMeter(b *testing.B, server string) *meter {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	m := &meter{listener: listener}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, conn); _ = client.Close() }()
			go func() {
				buffer := make([]byte, 1<<16)
				for {
					n, err := client.Read(buffer)
					if n > 0 {
						m.sent.Add(1)
						_, _ = conn.Write(buffer[:n])
					}
					if err != nil {
						_ = conn.Close()
						return
					}
				}
			}()
		}
	}()
	return m
}

package rivals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/redis"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// redisTTL is how long a lock of a holder that was killed stays.
const redisTTL = 30 * time.Second

// redisRival is a way to have one holder at a time in Redis.
type redisRival struct {
	// take waits for the lock, and keeps it. lost is closed when the holder is notified that it has lost the lock: never if it is not.
	take func(ctx context.Context, at string) (lost <-chan struct{}, release func(context.Context) error, err error)
	// try takes the lock without waiting, and reports whether it has it.
	try func(ctx context.Context, at string) (bool, error)
	key string // at which the lock is
}

func redisClient(at string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: at, Password: redistest.Password})
}

var redisRivals = map[string]redisRival{
	"Holdfast": {
		take: func(ctx context.Context, at string) (<-chan struct{}, func(context.Context) error, error) {
			c, err := holdfast.Open(ctx, redistest.At(at), holdfast.WithTTL(redisTTL), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				return nil, nil, err
			}
			h, err := c.Lock(ctx, name)
			if err != nil {
				return nil, nil, err
			}
			return h.Context().Done(), h.Release, nil
		},
		try: func(ctx context.Context, at string) (bool, error) {
			c, err := holdfast.Open(ctx, redistest.At(at))
			if err != nil {
				return false, err
			}
			_, err = c.TryLock(ctx, name)
			return err == nil, err
		},
		key: "holdfast:" + name,
	},
	// Neither renews a lock by itself: a program that outlives the expiry extends it in a loop of its own, as here.
	"redsync": {
		take: func(ctx context.Context, at string) (<-chan struct{}, func(context.Context) error, error) {
			m := redsync.New(redsyncredis.NewPool(redisClient(at))).NewMutex(name, redsync.WithExpiry(redisTTL))
			for m.LockContext(ctx) != nil { // it gives up after 32 attempts
				if ctx.Err() != nil {
					return nil, nil, ctx.Err()
				}
			}
			lost := extend(func() bool { ok, err := m.ExtendContext(ctx); return ok && err == nil })
			return lost, func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }, nil
		},
		try: func(ctx context.Context, at string) (bool, error) {
			err := redsync.New(redsyncredis.NewPool(redisClient(at))).NewMutex(name, redsync.WithExpiry(redisTTL)).TryLockContext(ctx)
			return err == nil, err
		},
		key: name,
	},
	"redislock": {
		take: func(ctx context.Context, at string) (<-chan struct{}, func(context.Context) error, error) {
			waiting, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			l, err := redislock.New(redisClient(at)).Obtain(waiting, name, redisTTL,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
			if err != nil {
				return nil, nil, err
			}
			return extend(func() bool { return l.Refresh(ctx, redisTTL, nil) == nil }), l.Release, nil
		},
		try: func(ctx context.Context, at string) (bool, error) {
			_, err := redislock.New(redisClient(at)).Obtain(ctx, name, redisTTL, nil)
			return err == nil, err
		},
		key: name,
	},
}

// extend is the loop that a program needs to keep a lock.
func extend(again func() bool) <-chan struct{} {
	lost := make(chan struct{})
	go func() {
		for again() {
			time.Sleep(redisTTL / 3)
		}
		close(lost)
	}()
	return lost
}

// holdRedis is the other process of a benchmark.
func holdRedis(rival, at string) {
	lost, _, err := redisRivals[rival].take(context.Background(), at)
	if err != nil {
		fmt.Fprintln(os.Stderr, rival, err)
		return
	}
	fmt.Println("held")
	<-lost
	fmt.Println("lost <nil>")
}

// A fleet with redsync or redislock moves in one rollout: old programs and new ones exclude each other.
func TestOldKeysOfRedsyncAndRedislock(t *testing.T) {
	s := redistest.Start(t)
	own := redisClient(s.Addr())
	defer func() { _ = own.Close() }()
	ctx := t.Context()
	l, err := redis.New(ctx, own, redis.WithOldKeys(func(name string) string { return name }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(ctx)) }()
	mutex := redsync.New(redsyncredis.NewPool(own)).NewMutex(name)
	locks := redislock.New(own)
	var lock *redislock.Lock
	for old, p := range map[string]struct{ take, keep, free func() error }{
		"redsync": {func() error { return mutex.TryLockContext(ctx) },
			func() error { _, err := mutex.ExtendContext(ctx); return err },
			func() error { _, err := mutex.UnlockContext(ctx); return err }},
		"redislock": {func() (err error) { lock, err = locks.Obtain(ctx, name, 8*time.Second, nil); return err },
			func() error { return lock.Refresh(ctx, 8*time.Second, nil) },
			func() error { return lock.Release(ctx) }},
	} {
		req := driver.Request{Name: name, ID: driver.NewLeaseID(old), Owner: old, TTL: time.Minute}
		if err := p.take(); err != nil {
			t.Fatalf("%s: the lock is free: %v", old, err)
		}
		var held *driver.HeldError
		if _, err := l.TryAcquire(ctx, req); !errors.As(err, &held) {
			t.Fatalf("%s has the lock: %v", old, err)
		}
		if err := p.keep(); err != nil {
			t.Errorf("%s extends its lock: %v", old, err)
		}
		req.Replace = held.Record.Revision // as if nothing had changed for long
		if _, err := l.TryAcquire(ctx, req); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s has extended the lock: %v", old, err)
		}
		req.Replace = driver.Revision{}
		if err := p.free(); err != nil {
			t.Errorf("%s releases its lock: %v", old, err)
		}
		lease, err := l.TryAcquire(ctx, req)
		if err != nil {
			t.Errorf("%s has released the lock: %v", old, err)
		}
		if err := p.take(); err == nil {
			t.Errorf("%s has got a lock that is held", old)
		}
		if lease, err = l.Renew(ctx, lease); err != nil {
			t.Error(err)
		}
		if err := l.Release(ctx, lease); err != nil {
			t.Error(err)
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

// BenchmarkRedisRivals prints one table.
func BenchmarkRedisRivals(b *testing.B) {
	ctx := b.Context()
	names := []string{"Holdfast", "redsync", "redislock"}
	row := map[string][]string{}
	var mu sync.Mutex
	add := func(n, text string) { mu.Lock(); defer mu.Unlock(); row[n] = append(row[n], text) }
	quiet := redistest.Start(b)
	pairOf := map[string]func() error{}
	c, err := holdfast.Open(ctx, quiet.URL(), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Shutdown(context.WithoutCancel(ctx)) }()
	own := redisClient(quiet.Addr())
	pool, locks := redsync.New(redsyncredis.NewPool(own)), redislock.New(own)
	pairOf["Holdfast"] = func() error {
		h, err := c.Lock(ctx, name)
		if err != nil {
			return err
		}
		return h.Release(ctx)
	}
	pairOf["redsync"] = func() error {
		m := pool.NewMutex("r")
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		_, err := m.UnlockContext(ctx)
		return err
	}
	pairOf["redislock"] = func() error {
		l, err := locks.Obtain(ctx, "l", redisTTL, nil)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
	took := map[string][]time.Duration{}
	for i := range pairs + warmUp { // one after another, so that noise concerns all
		for _, n := range names {
			begin := time.Now()
			if err := pairOf[n](); err != nil {
				b.Fatal(n, err)
			}
			if i >= warmUp {
				took[n] = append(took[n], time.Since(begin))
			}
		}
	}
	for _, n := range names {
		slices.Sort(took[n])
		add(n, took[n][len(took[n])/2].Round(10*time.Microsecond).String())
	}
	var all sync.WaitGroup
	for _, n := range names {
		all.Go(func() {
			server := redistest.Start(b)
			if n == "Holdfast" {
				settle(b, server.URL())
			}
			holders, waiters := newMeter(b, server.Addr()), newMeter(b, server.Addr())
			holder := start(b, "redis/"+n, holders.listener.Addr().String())
			<-holder.held
			waiter := start(b, "redis/"+n, waiters.listener.Addr().String())
			time.Sleep(5 * time.Second)
			h, w := holders.sent.Load(), waiters.sent.Load()
			time.Sleep(time.Minute)
			add(n, fmt.Sprint(holders.sent.Load()-h))
			add(n, fmt.Sprint(waiters.sent.Load()-w))
			holder.kill()
			add(n, after(waiter.held, time.Now()))
			time.Sleep(2 * time.Second)
			begin := time.Now()
			if err := redisClient(server.Addr()).Del(ctx, redisRivals[n].key).Err(); err != nil {
				b.Error(err)
			}
			add(n, after(waiter.lost, begin))
			waiter.kill()
			add(n, twoHolders(b, n))
		})
	}
	all.Wait()
	fmt.Println("| | acquire + release | requests a minute, holder | waiter | take-over after kill -9 | notified of a loss after |",
		"holders after a fail-over |")
	for _, n := range names {
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
			b.Error(err)
		}
	}
}

// twoHolders counts those who hold the lock when the replica that lags behind is promoted.
func twoHolders(b *testing.B, n string) string {
	b.Helper()
	ctx := b.Context()
	server := redistest.Start(b)
	replica := redistest.StartReplica(b, server)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		info, err := redisClient(server.Addr()).Info(ctx, "replication").Result()
		if err == nil && strings.Contains(info, "state=online") {
			break
		}
		if time.Now().After(end) {
			b.Error(info, err)
			return "none"
		}
	}
	holders := 0
	if err := replica.Pause(); err != nil {
		b.Error(err)
	}
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if got, _ := redisRivals[n].try(limited, server.Addr()); got {
		holders++
	}
	if err := errors.Join(server.Kill(), replica.Resume()); err != nil {
		b.Error(err)
	}
	promoted := redisClient(replica.Addr())
	if err := promoted.SlaveOf(ctx, "NO", "ONE").Err(); err != nil {
		b.Error(err)
	}
	if got, _ := redisRivals[n].try(ctx, replica.Addr()); got {
		holders++
	}
	return fmt.Sprint(holders)
}

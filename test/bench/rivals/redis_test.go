package rivals

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/redis"
	"github.com/holdfast-go/holdfast/test/redistest"
)

func redisClient(at string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: at, Password: redistest.Password})
}

var redisRivals = &comparison{
	names: []string{"Holdfast", "redsync", "redislock"},
	rivals: map[string]rivalIn{
		"Holdfast": {take: holdfastOn(redistest.At), lose: loseKey("holdfast:" + name)},
		// Neither renews a lock by itself: a program that outlives the expiry extends it in a loop of its own, as here.
		"redsync": {
			take: func(ctx context.Context, at string) (func(context.Context) (taken, error), error) {
				pool := redsync.New(redsyncredis.NewPool(redisClient(at)))
				return func(ctx context.Context) (taken, error) {
					m := pool.NewMutex(name, redsync.WithExpiry(ttl))
					for m.LockContext(ctx) != nil { // it gives up after 32 attempts
						if ctx.Err() != nil {
							return taken{}, ctx.Err()
						}
					}
					return taken{func() <-chan struct{} {
						return extend(func() bool { ok, err := m.ExtendContext(ctx); return ok && err == nil })
					},
						func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }}, nil
				}, nil
			},
			try: func(ctx context.Context, at string) error {
				return redsync.New(redsyncredis.NewPool(redisClient(at))).NewMutex(name, redsync.WithExpiry(ttl)).TryLockContext(ctx)
			},
			lose: loseKey(name),
		},
		"redislock": {
			take: func(ctx context.Context, at string) (func(context.Context) (taken, error), error) {
				locks := redislock.New(redisClient(at))
				return func(ctx context.Context) (taken, error) {
					waiting, cancel := context.WithTimeout(ctx, time.Hour)
					defer cancel()
					l, err := locks.Obtain(waiting, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
					if err != nil {
						return taken{}, err
					}
					return taken{func() <-chan struct{} { return extend(func() bool { return l.Refresh(ctx, ttl, nil) == nil }) }, l.Release}, nil
				}, nil
			},
			try: func(ctx context.Context, at string) error {
				_, err := redislock.New(redisClient(at)).Obtain(ctx, name, ttl, nil)
				return err
			},
			lose: loseKey(name),
		},
	},
	start: func(b *testing.B) string { b.Helper(); return redistest.Start(b).Addr() },
	url:   redistest.At,
}

// loseKey removes a key, and with it the lock of its holder.
func loseKey(key string) func(ctx context.Context, at string) error {
	return func(ctx context.Context, at string) error { return redisClient(at).Del(ctx, key).Err() }
}

// extend is the loop that a program needs to keep a lock.
func extend(again func() bool) <-chan struct{} {
	lost := make(chan struct{})
	go func() {
		for again() {
			time.Sleep(ttl / 3)
		}
		close(lost)
	}()
	return lost
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

// BenchmarkRedisRivals prints two tables.
func BenchmarkRedisRivals(b *testing.B) {
	redisRivals.run(b)
	fmt.Println("| | holders after a fail-over |")
	for _, n := range redisRivals.names {
		fmt.Println("|", n, "|", twoHolders(b, n), "|")
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
	if redisRivals.rivals[n].try(limited, server.Addr()) == nil {
		holders++
	}
	if err := errors.Join(server.Kill(), replica.Resume()); err != nil {
		b.Error(err)
	}
	promoted := redisClient(replica.Addr())
	if err := promoted.SlaveOf(ctx, "NO", "ONE").Err(); err != nil {
		b.Error(err)
	}
	if redisRivals.rivals[n].try(ctx, replica.Addr()) == nil {
		holders++
	}
	return fmt.Sprint(holders)
}

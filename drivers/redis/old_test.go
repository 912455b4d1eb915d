package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/redistest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// oldLock is a lock as redsync and redislock take it.
type oldLock struct {
	client *goredis.Client
	key    string
}

func (o oldLock) take(ctx context.Context, value string, ttl time.Duration) (bool, error) {
	return o.client.SetNX(ctx, o.key, value, ttl).Result()
}

var (
	oldRelease = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	oldExtend  = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
	// oldObtain is that of redislock, which takes a lock again whose value begins with the same token.
	oldObtain = goredis.NewScript(`if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return 1 end
local n = tonumber(ARGV[2])
if redis.call('GETRANGE', KEYS[1], 0, n-1) == string.sub(ARGV[1], 1, n) then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3]) return 1 end
return 0`)
)

func (o oldLock) release(ctx context.Context, value string) (bool, error) {
	n, err := oldRelease.Run(ctx, o.client, []string{o.key}, value).Int()
	return n == 1, err
}

func (o oldLock) extend(ctx context.Context, value string, ttl time.Duration) (bool, error) {
	n, err := oldExtend.Run(ctx, o.client, []string{o.key}, value, ttl.Milliseconds()).Int()
	return n == 1, err
}

func (o oldLock) obtain(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	n, err := oldObtain.Run(ctx, o.client, []string{o.key}, token, len(token), ttl.Milliseconds()).Int()
	return n == 1, err
}

func oldKeyOf(name string) string { return "old/" + name }

// Programs with an older lock and those with this one exclude each other, however the lock changes hands.
func TestOldKeys(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := openAt(t, s.URL(), WithOldKeys(oldKeyOf))
	old := oldLock{client(t, s.Addr()), oldKeyOf("n")}
	must := func(what string, got bool, err error) {
		t.Helper()
		if err != nil || !got {
			t.Fatalf("%s: %v, %v", what, got, err)
		}
	}
	got, err := old.take(t.Context(), "theirs", time.Minute)
	must("the lock is free", got, err)
	_, err = l.TryAcquire(t.Context(), request("n", "a"))
	var held *driver.HeldError
	if !errors.As(err, &held) || !strings.Contains(held.Record.Owner, old.key) || held.Record.Remaining > time.Minute ||
		held.Record.Remaining < time.Second || strings.Contains(err.Error(), "theirs") {
		t.Fatalf("held by an older program: %v", err)
	}
	waiting := request("n", "w")
	records, errs := l.InspectBatch(t.Context(), "", []string{"n", "free"})
	if err := errors.Join(errs...); err != nil || records[0].State != driver.StateHeld || records[1].State != driver.StateFree {
		t.Errorf("%v, %v", records, err)
	}
	for r, err := range l.List(t.Context(), "") {
		if err != nil || r.Name != "n" || r.State != driver.StateHeld {
			t.Error(r, err)
		}
	}
	got, err = old.release(t.Context(), "theirs")
	must("released by its holder", got, err)
	first, err := l.TryAcquire(t.Context(), waiting)
	must("released by an older program", first.Token > 0, err)
	if got, err := old.take(t.Context(), "theirs", time.Minute); got || err != nil {
		t.Errorf("held here: %v, %v", got, err)
	}
	if first, err = l.Renew(t.Context(), first); err != nil {
		t.Error(err)
	}
	if left, err := old.client.PTTL(t.Context(), old.key).Result(); err != nil || left <= 0 || left > waiting.TTL+time.Second {
		t.Errorf("the old key ends in %v, %v", left, err)
	}
	if err := l.Release(t.Context(), first); err != nil {
		t.Error(err)
	}
	got, err = old.take(t.Context(), "theirs", 300*time.Millisecond)
	must("released here", got, err)
	var second driver.Lease
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) { // it ends by its expiry
		if second, err = l.TryAcquire(t.Context(), request("n", "b")); err == nil {
			break
		}
		if !errors.Is(err, driver.ErrHeld) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	// A person frees a lock that an older program holds by deleting its key: a token would not tell two such holders apart.
	if err := l.Release(t.Context(), second); err != nil {
		t.Error(err)
	}
	got, err = old.take(t.Context(), "theirs", 0)
	must("without an expiry", got, err)
	if err := l.Break(t.Context(), "n", driver.BreakAnybody()); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("the holder would not notice: %v", err)
	}
	err = l.BreakNow(t.Context(), "n", driver.BreakAnybody())
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), old.key) {
		t.Errorf("free the lock of an older program: %v", err)
	}
	if value, err := old.client.Get(t.Context(), old.key).Result(); value != "theirs" {
		t.Errorf("the old key has %q, %v", value, err)
	}
	if err := old.client.Del(t.Context(), old.key).Err(); err != nil {
		t.Error(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("n", "c")); err != nil {
		t.Error(err)
	}
}

// Two locks with one old key exclude each other, too, also under two prefixes.
func TestOneOldKeyOfTwoLocks(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	same := WithOldKeys(func(string) string { return "old" })
	l, other := openAt(t, s.URL(), same, unprobed), openAt(t, s.URL(), same, WithPrefix("other:"), unprobed)
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	_, second := l.TryAcquire(t.Context(), request("m", "b"))
	_, third := other.TryAcquire(t.Context(), request("n", "c"))
	for _, err := range []error{second, third} {
		if !errors.Is(err, driver.ErrHeld) {
			t.Error(err)
		}
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("m", "b")); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// withLongNames is a store with old keys that keeps the locks of long names without them.
type withLongNames struct{ *store }

func (s withLongNames) of(key string) *store {
	if lockrecord.IsLong(key) {
		return &store{servers: s.servers, config: s.config, db: s.db, hub: s.hub}
	}
	return s.store
}

func (s withLongNames) Get(ctx context.Context, key string) (cas.Value, error) {
	v, err := s.of(key).Get(ctx, key)
	if v.Other != nil && v.Other.Mark == "" {
		v.Other = nil // the suite demands that a lease that has ended is renewed if nobody has the lock; see TestLateRenewalAfterAnOldHolder
	}
	return v, err
}

func (s withLongNames) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	return s.of(key).Put(ctx, key, data, version)
}

func (s withLongNames) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	return cas.GetByList(ctx, s, keys, 1)
}

// The suite, with old keys.
func TestConformanceWithOldKeys(t *testing.T) {
	serverprocess.Long(t, "runs the whole suite once more")
	t.Parallel()
	s := redistest.Start(t)
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			inner := openAt(t, s.URL(), WithOldKeys(oldKeyOf), unprobed).store
			l, err := cas.Open(t.Context(), withLongNames{inner}, cas.Config{Info: inner.info(), ProbeRounds: -1})
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		Forget: func(ctx context.Context, name string) error {
			return client(t, s.Addr()).Del(ctx, defaultPrefix+lockrecord.Key(name), oldKeyOf(name)).Err()
		},
		Without: []string{"Damage", "Deny", "FailOver", "Stall"},
	})
}

// A lease that has ended leaves the old key to others, and its late holder touches nothing of theirs.
func TestLateHolderAndOldKeys(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := openAt(t, s.URL(), WithOldKeys(oldKeyOf))
	old := oldLock{client(t, s.Addr()), oldKeyOf("n")}
	req := request("n", "a")
	req.TTL = time.Second
	lease, err := l.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if got, err := old.take(t.Context(), "theirs", time.Minute); got || time.Now().After(end) {
			if err != nil || !got {
				t.Fatal(err)
			}
			break
		}
	}
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("an older program has the lock: %v", err)
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	if value, err := old.client.Get(t.Context(), old.key).Result(); value != "theirs" {
		t.Errorf("the old key has %q, %v", value, err)
	}
}

// Promise 1: a lease that has ended is not renewed after an older program had the lock in between, which leaves no trace.
func TestLateRenewalAfterAnOldHolder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := openAt(t, s.URL(), WithOldKeys(oldKeyOf), unprobed)
	old := oldLock{client(t, s.Addr()), oldKeyOf("n")}
	req := request("n", "a")
	req.TTL = time.Second
	lease, err := l.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if got, err := old.take(t.Context(), "theirs", time.Minute); got || time.Now().After(end) {
			if err != nil || !got {
				t.Fatal(err)
			}
			break
		}
	}
	if got, err := old.release(t.Context(), "theirs"); err != nil || !got {
		t.Fatal(got, err)
	}
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("an older program had the lock in between: %v", err)
	}
	if got, err := old.take(t.Context(), "theirs", time.Minute); err != nil || !got {
		t.Errorf("the lock is free: %v, %v", got, err)
	}
}

// Names that cannot have an old key, and old keys among the records, are refused.
func TestInvalidOldKeys(t *testing.T) {
	t.Parallel()
	l := openAt(t, redistest.Start(t).URL(), WithOldKeys(func(name string) string { return strings.TrimPrefix(name, "x") }))
	if _, err := l.TryAcquire(t.Context(), request("x"+defaultPrefix+"n", "a")); !errors.Is(err, driver.ErrDenied) {
		t.Error(err)
	}
	if _, err := l.TryAcquire(t.Context(), request(strings.Repeat("n", 151), "a")); !errors.Is(err, driver.ErrDenied) {
		t.Error(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("x", "a")); err != nil {
		t.Errorf("a lock without an old key: %v", err)
	}
	if _, err := Open(t.Context(), "redis://127.0.0.1?cluster=true", WithOldKeys(oldKeyOf)); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	if _, err := Open(t.Context(), "redis://127.0.0.1", WithOldKeys(nil)); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}

package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/redistest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// storeAt makes the store of a Locker, without the Locker.
func storeAt(t *testing.T, rawURL string) *store {
	t.Helper()
	l := openAt(t, rawURL, unprobed)
	return l.store
}

// One write of several with a condition is done. The refusal brings the present value, and so does a read.
func TestPut(t *testing.T) {
	t.Parallel()
	s := storeAt(t, redistest.URL(t))
	first, err := s.Put(t.Context(), "k", []byte("first"), "")
	if err != nil || first.Version == "" || first.Now.IsZero() {
		t.Fatalf("%+v, %v", first, err)
	}
	for _, version := range []string{"", "other"} {
		var refused *cas.RefusedError
		_, err := s.Put(t.Context(), "k", []byte("second"), version)
		if !errors.As(err, &refused) || string(refused.Present.Data) != "first" || refused.Present.Version != first.Version {
			t.Errorf("version %q: %v, %+v", version, err, refused)
		}
	}
	if _, err := s.Put(t.Context(), "missing", []byte("second"), first.Version); !errors.Is(err, cas.ErrConflict) {
		t.Errorf("a version of a key without a value: %v", err)
	}
	if v, err := s.Get(t.Context(), "missing"); err != nil || v.Version != "" || v.Now.IsZero() {
		t.Errorf("%+v, %v, want no value, and the time", v, err)
	}
	// An edit by hand changes the version.
	if err := s.servers.some().Set(t.Context(), s.key("k"), "by hand", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "k", []byte("second"), first.Version); !errors.Is(err, cas.ErrConflict) {
		t.Errorf("a write over an edit by hand: %v", err)
	}
}

// A value without a string is damaged, one by one and in a batch, and nothing replaces it.
func TestForeignValue(t *testing.T) {
	t.Parallel()
	l := openAt(t, redistest.URL(t))
	if err := l.store.servers.some().RPush(t.Context(), l.store.key(lockrecord.Key("list")), "x").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("list", "a")); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("acquire: %v", err)
	}
	_, errs := l.InspectBatch(t.Context(), "", []string{"list", "free"})
	if !errors.Is(errs[0], driver.ErrDamaged) || errs[1] != nil {
		t.Errorf("batch: %v", errs)
	}
	found := 0
	for _, err := range l.List(t.Context(), "") {
		if found++; !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("list: %v", err)
		}
	}
	if found != 1 {
		t.Errorf("listed %d records", found)
	}
}

// Other keys of the database are no locks, and two prefixes share none.
func TestPrefix(t *testing.T) {
	t.Parallel()
	at := redistest.URL(t)
	first, second := openAt(t, at), openAt(t, at, WithHistory(1))
	other := openAt(t, strings.Replace(at, "prefix=", "prefix=other-", 1))
	if _, err := first.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := second.TryAcquire(t.Context(), request("n", "b")); !errors.Is(err, driver.ErrHeld) {
		t.Error(err)
	}
	if _, err := other.TryAcquire(t.Context(), request("n", "c")); err != nil {
		t.Error(err)
	}
	n := 0
	for r, err := range first.List(t.Context(), "") {
		if n++; err != nil || r.Owner != "owner a" {
			t.Error(r, err)
		}
	}
	if n != 1 {
		t.Errorf("%d locks", n)
	}
}

// Databases share the channels of a server, and no locks.
func TestDatabase(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	zero, one := openAt(t, s.URL()), openAt(t, s.URL()+"/1")
	if _, err := zero.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := one.TryAcquire(t.Context(), request("n", "b")); err != nil {
		t.Error(err)
	}
	if a, b := zero.store.channel("n"), one.store.channel("n"); a == b {
		t.Error("two databases have one channel:", a)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := castest.NewProxy(t, s.Addr())
	l := openAt(t, redistest.At(proxy.Addr()))
	castest.RunWatch(t, castest.Watched{Store: l.store, Watch: l.store.hub.watch, Cut: proxy.Cut})
}

// Many watches share one connection, which keeps nothing of those that have ended.
func TestWatchesShareAConnection(t *testing.T) {
	t.Parallel()
	s := storeAt(t, redistest.URL(t))
	var began sync.WaitGroup
	var ended sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	staying, stop := context.WithCancel(t.Context()) // so that the connection stays, too
	stayed := make(chan struct{})
	defer func() { stop(); <-stayed }()
	go func() {
		defer close(stayed)
		_ = s.hub.watch(staying, "staying", func(cas.Value) {})
	}()
	const n = 300
	for i := range n {
		began.Add(1)
		var once sync.Once
		ended.Go(func() {
			_ = s.hub.watch(ctx, fmt.Sprint("key", i%100), func(cas.Value) { once.Do(began.Done) })
		})
	}
	began.Wait()
	s.hub.mu.Lock()
	l := s.hub.listener
	s.hub.mu.Unlock()
	subscribed, err := s.servers.some().PubSubNumSub(t.Context(), s.channel("key0"), s.channel("key99")).Result()
	if err != nil || subscribed[s.channel("key0")] != 1 || subscribed[s.channel("key99")] != 1 {
		t.Errorf("%v, %v, want one subscription of each channel", subscribed, err)
	}
	cancel()
	ended.Wait()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s.hub.mu.Lock()
		left := len(l.channels)
		s.hub.mu.Unlock()
		subscribed, err = s.servers.some().PubSubNumSub(t.Context(), s.channel("key0")).Result()
		if left == 1 && err == nil && subscribed[s.channel("key0")] == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d channels and %v subscriptions are left, %v", left, subscribed, err)
		}
	}
}

// A connection on which nothing comes stays as long as it answers. One that does not answer ends its watches.
func TestSilentConnection(t *testing.T) {
	serverprocess.Long(t, "waits for a silence")
	t.Parallel()
	s := redistest.Start(t)
	for _, dead := range []bool{false, true} {
		proxy := castest.NewProxy(t, s.Addr())
		l := openAt(t, redistest.At(proxy.Addr()), WithCommandTimeout(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 4*silence)
		err := l.store.hub.watch(ctx, "key", func(cas.Value) {
			if dead {
				proxy.Set(castest.Stall)
			}
		})
		if over := ctx.Err() != nil; over == dead {
			t.Errorf("dead: %v: %v", dead, err)
		}
		cancel()
	}
}

// A user without the right to publish can lock; waiters poll.
func TestWithoutPublish(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var rights []any
	for _, r := range leastRights {
		if r != "+publish" {
			rights = append(rights, r)
		}
	}
	l := openAt(t, makeUser(t, s, rights...))
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err == nil {
		err = l.Release(t.Context(), lease)
	}
	if err != nil {
		t.Error(err)
	}
}

// A user who may only read sees the locks, and is refused everything else, for good.
func TestReadOnlyUser(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if _, err := openAt(t, s.URL()).TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	at := makeUser(t, s, "~holdfast:*", "+get", "+mget", "+scan", "+time", "+hello", "+select")
	if _, err := Open(t.Context(), at); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("opened without the right to write: %v", err)
	}
	l, err := driver.OpenForReading(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Owner != "owner a" {
		t.Error(r, err)
	}
	for r, err := range l.Capabilities().Lister.List(t.Context(), "") {
		if err != nil || r.Owner != "owner a" {
			t.Error(r, err)
		}
	}
	if _, err := l.TryAcquire(t.Context(), request("m", "b")); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("acquire: %v", err)
	}
}

// Lasting refusals are distinguished from others, also within a script, and show no password.
func TestDenied(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for what, c := range map[string]struct{ at, helps string }{
		"wrong password":      {"redis://:wrong-secret@" + s.Addr(), "check user and password"},
		"no password":         {"redis://" + s.Addr(), "demands user and password"},
		"unknown user":        {"redis://nobody:wrong-secret@" + s.Addr(), "check user and password"},
		"no SET in a script":  {makeUserNamed(t, s, "noset", "~holdfast:*", "&holdfast:*", "+@all", "-set"), "docs/redis.md"},
		"no such database":    {s.URL() + "/99", "fewer databases"},
		"another key pattern": {makeUserNamed(t, s, "nokeys", "~others:*", "&holdfast:*", "+@all"), "docs/redis.md"},
	} {
		_, err := Open(t.Context(), c.at)
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), c.helps) ||
			strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), appPassword) {
			t.Errorf("%s: %v", what, err)
		}
	}
	l := openAt(t, s.URL())
	if err := client(t, s.Addr()).ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := l.TryAcquire(ctx, request("n", "a"))
	if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("memory is full: %v", err)
	}
}

// makeUserNamed is makeUser for a test with several.
func makeUserNamed(t *testing.T, s *redistest.Server, name string, rights ...any) string {
	t.Helper()
	args := append([]any{"ACL", "SETUSER", name, "reset", "on", ">" + appPassword}, rights...)
	if err := client(t, s.Addr()).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return "redis://" + name + ":" + appPassword + "@" + s.Addr()
}

// A call ends with its context, although the server does not answer, and so does Close.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := castest.NewProxy(t, s.Addr())
	l, err := Open(t.Context(), redistest.At(proxy.Addr()), WithCommandTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Set(castest.Stall)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	if _, err := l.TryAcquire(ctx, request("n", "a")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	closing, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	_ = l.Close(closing)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// Through a network that loses, delays and doubles, every call is true or unknown, and two clients never hold one lock.
func TestFaultyNetwork(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := castest.NewProxy(t, s.Addr())
	ctx, stop := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	faults.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			proxy.Set([]castest.Mode{castest.LoseAnswers, castest.Pass, castest.Double, castest.Stall, castest.Pass, castest.Refuse}[i%6])
			select {
			case <-time.After(60 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		proxy.Set(castest.Pass)
	})
	var holder atomic.Int64
	var last atomic.Uint64
	var clients sync.WaitGroup
	grants := atomic.Int64{}
	for i := range 4 {
		clients.Go(func() {
			var mine *Locker
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
				if mine == nil {
					opened, err := Open(t.Context(), redistest.At(proxy.Addr()), WithCommandTimeout(300*time.Millisecond), unprobed)
					if err != nil {
						continue
					}
					mine = opened
				}
				req := request("n", fmt.Sprint(i, "-", time.Now().UnixNano()))
				req.TTL = 10 * time.Second
				lease, err := mine.TryAcquire(t.Context(), req)
				if err != nil {
					continue
				}
				grants.Add(1)
				if !holder.CompareAndSwap(0, int64(i+1)) {
					t.Errorf("two holders: %d and %d", holder.Load(), i+1)
				}
				if before := last.Swap(lease.Token); lease.Token <= before {
					t.Errorf("token %d after %d", lease.Token, before)
				}
				holder.Store(0)
				for mine.Release(t.Context(), lease) != nil && t.Context().Err() == nil {
				}
			}
			if mine != nil {
				_ = mine.Close(context.WithoutCancel(t.Context()))
			}
		})
	}
	clients.Wait()
	stop()
	faults.Wait()
	if grants.Load() == 0 {
		t.Error("nobody was granted the lock")
	}
}

// The suite again, over writes that lose their answers.
func TestConformanceWithLostAnswers(t *testing.T) {
	serverprocess.Long(t, "runs the whole suite once more")
	t.Parallel()
	s := redistest.Start(t)
	var opened atomic.Uint64
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			inner := storeAt(t, s.URL())
			l, err := cas.Open(t.Context(), castest.Faulty(t, inner, castest.LostAnswers(opened.Add(1))), cas.Config{Info: inner.info(),
				Watch: inner.hub.watch, ProbeRounds: -1})
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		Forget: func(ctx context.Context, name string) error {
			return client(t, s.Addr()).Del(ctx, defaultPrefix+lockrecord.Key(name)).Err()
		},
		Without: []string{"Damage", "Deny", "FailOver", "Stall"},
	})
}

// A watch is in effect when its own subscription is confirmed, not by the confirmation of an earlier one that has ended.
func TestConfirmationOfAnEarlierWatch(t *testing.T) {
	t.Parallel()
	h := newHub(&store{})
	l := &listener{due: make(chan struct{}, 1), channels: map[string]*channel{}}
	h.listener = l
	join := func(w *watch) {
		t.Helper()
		if _, err := h.join("key", "name", w); err != nil {
			t.Fatal(err)
		}
		if subscribe, unsubscribe := h.changes(l); len(subscribe) != 1 || len(unsubscribe) != 0 {
			t.Errorf("subscribes to %q, and ends %q", subscribe, unsubscribe)
		}
	}
	earlier, later := &watch{}, &watch{}
	join(earlier)
	h.end(l, "name", earlier)
	if subscribe, unsubscribe := h.changes(l); len(subscribe)+len(unsubscribe) != 0 {
		t.Errorf("subscribes to %q, and ends %q, before the first subscription is confirmed", subscribe, unsubscribe)
	}
	join(later)
	if began := h.confirm(l, "name"); len(began) != 0 {
		t.Error("a watch is in effect by the confirmation of an earlier one")
	}
	if began := h.confirm(l, "name"); len(began) != 1 || began[0] != later || len(h.inEffect(l, "name")) != 1 {
		t.Error("a watch is not in effect after its confirmation")
	}
	h.end(l, "name", later)
	if _, unsubscribe := h.changes(l); len(unsubscribe) != 1 || len(l.channels) != 0 {
		t.Errorf("ends %q, and keeps %d channels", unsubscribe, len(l.channels))
	}
}

package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Observe yields the present record at once, and the record again for each change of the holder:
// an acquisition, a release, a break, an expiry. It yields nothing for renewals.
func TestObserveYieldsEachChange(t *testing.T) {
	withAndWithoutWatcher(t, func(t *testing.T, watcher bool) {
		store := memory.NewStore()
		holders := locktest.NewClient(t, store.Locker(), holdfast.WithOwner("holder"))
		l := newInspected(store.Locker()).withWatcher(watcher)
		o := observe(t, locktest.NewClient(t, l), "job")
		// wakes says whether the Watcher reports the change: a backend's Watcher reports releases.
		expect := func(what string, wakes bool, matches func(holdfast.Record) bool) {
			t.Helper()
			limit := 6 * time.Second // the poll interval, and its jitter
			switch {
			case watcher && wakes:
				limit = 50 * time.Millisecond
			case watcher:
				limit = 25 * time.Second // the poll interval while a Watcher is in effect, and its jitter
			}
			time.Sleep(limit)
			got := o.next()
			if len(got) != 1 || got[0].err != nil || got[0].record.Name != "job" || !matches(got[0].record) {
				t.Errorf("%s: %+v", what, got)
			}
			time.Sleep(30 * time.Second) // for renewals
			if got := o.next(); len(got) != 0 {
				t.Errorf("%s: then %+v", what, got)
			}
		}
		if got := o.next(); len(got) != 1 || got[0].err != nil || got[0].record.State != driver.StateFree || got[0].after != 0 {
			t.Errorf("a free lock: %+v", got)
		}
		var h *holdfast.Hold
		held := func(r holdfast.Record) bool {
			return r.State == driver.StateHeld && r.Owner == "holder" && r.Token == h.Token() && !r.Broken
		}
		free := func(r holdfast.Record) bool { return r.State == driver.StateFree }
		h = locktest.MustLock(t, holders, "job")
		expect("acquired", false, held)
		if got := observe(t, locktest.NewClient(t, l), "job").next(); len(got) != 1 || !held(got[0].record) || got[0].after != 0 {
			t.Errorf("a held lock: %+v", got)
		}
		locktest.Release(t, h)
		expect("released", true, free)
		h = locktest.MustLock(t, holders, "job")
		expect("acquired again", false, held)
		if !watcher {
			return
		}
		// Changes soon after a read are yielded together, by the next read.
		list := l.reads.all()
		time.Sleep(max(0, list[len(list)-1]+51*time.Millisecond-time.Since(o.start))) // so that the next one follows at once
		for range 3 {
			locktest.Release(t, h)
			synctest.Wait()
			h = locktest.MustLock(t, holders, "job")
		}
		if got := o.next(); len(got) != 1 || !free(got[0].record) {
			t.Errorf("released: %+v", got)
		}
		expect("released and acquired again", true, held)
	})
}

// A broken lease is yielded, and its expiry at the moment when it comes, whatever the poll interval.
func TestObserveYieldsBreakAndExpiry(t *testing.T) {
	withAndWithoutWatcher(t, func(t *testing.T, watcher bool) {
		store := memory.NewStore()
		dead := store.Locker()
		if _, err := dead.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("dead"),
			TTL: 100 * time.Second}); err != nil {
			t.Fatal(err)
		}
		l := newInspected(store.Locker()).withWatcher(watcher)
		o := observe(t, locktest.NewClient(t, l), "job", holdfast.WithPollInterval(20*time.Second))
		if got := o.next(); len(got) != 1 || got[0].record.Broken {
			t.Fatalf("held: %+v", got)
		}
		time.Sleep(time.Second)
		if err := dead.Capabilities().Breaker.Break(t.Context(), "job", driver.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		if got := o.next(); len(got) != 1 || got[0].err != nil || got[0].record.State != driver.StateHeld || !got[0].record.Broken {
			t.Errorf("broken: %+v", got)
		}
		time.Sleep(10 * time.Minute)
		got := o.next()
		if len(got) != 1 || got[0].err != nil || got[0].record.State != driver.StateFree {
			t.Fatalf("expired: %+v", got)
		}
		if late := got[0].after - 100*time.Second; late < 0 || late > 60*time.Millisecond {
			t.Errorf("yielded %v after the expiry", late)
		}
	})
}

// Another program takes the lease without an end, after the holder that was seen: its owner stays unknown, and the change
// is yielded all the same.
func TestObserveYieldsAnEndlessLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		var endless atomic.Bool
		l := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			answer := next(ctx, call)
			if call.Method == driver.MethodInspect && endless.Load() {
				answer.Record = driver.Record{Name: "job", State: driver.StateHeld, Endless: true}
			}
			return answer
		})
		o := observe(t, locktest.NewClient(t, l), "job", holdfast.WithPollInterval(time.Second))
		if got := o.next(); len(got) != 1 || got[0].record.Token != h.Token() {
			t.Fatalf("held: %+v", got)
		}
		for _, now := range []bool{true, false} {
			endless.Store(now)
			time.Sleep(time.Minute)
			if got := o.next(); len(got) != 1 || got[0].err != nil || got[0].record.Endless != now {
				t.Errorf("endless %v: %+v", now, got)
			}
		}
	})
}

// Each failure to read is yielded. Reads are repeated after a growing backoff, which wake-ups do
// not shorten. A reply ends that, and is yielded only if it is news.
func TestObserveYieldsErrorsWithABackoff(t *testing.T) {
	for name, tt := range map[string]struct {
		inject func(context.Context) error
		want   error
		again  int // errors within 3 s of the next failure
	}{
		"refused":  {func(context.Context) error { return locktest.ErrInjected }, locktest.ErrInjected, 3},
		"no reply": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, context.DeadlineExceeded, 2},
	} {
		locktest.Bubble(t, name, func(t *testing.T) {
			store := memory.NewStore()
			holder := locktest.NewClient(t, store.Locker())
			h := locktest.MustLock(t, holder, "job")
			l := newInspected(store.Locker())
			stop := make(chan struct{})
			l.watch = floodEvery(time.Millisecond, stop)
			o := observe(t, locktest.NewClient(t, l), "job", holdfast.WithRequestTimeout(time.Second))
			if got := o.next(); len(got) != 1 || got[0].record.Token != h.Token() {
				t.Fatalf("held: %+v", got)
			}
			l.fail(tt.inject)
			time.Sleep(10 * time.Second)
			for i, y := range o.next() {
				if !errors.Is(y.err, tt.want) || y.record.State != 0 {
					t.Errorf("yield %d: %+v", i, y)
				}
			}
			failing := len(l.reads.all())
			time.Sleep(10 * time.Minute)
			got := o.next()
			// A read may be under way at the beginning and at the end.
			if n := len(l.reads.all()) - failing; max(n-len(got), len(got)-n) > 1 || n < 10*60/5 || n > 10*60/2 {
				t.Errorf("%d reads of a failing backend in 10 minutes, %d yields", n, len(got))
			}
			for i := range got[1:] { // a backoff of 2.5 s, jittered by a quarter, and the time of the read
				if d := got[i+1].after - got[i].after; d < 1800*time.Millisecond || d > 4200*time.Millisecond {
					t.Fatalf("yield %d after %v: %+v", i+1, d, got[i+1])
				}
			}
			l.fail(func(context.Context) error { return nil })
			time.Sleep(time.Minute)
			if got := o.next(); slices.ContainsFunc(got, func(y yield) bool { return y.err == nil }) || len(got) > 1 {
				t.Errorf("the same holder was yielded again: %+v", got)
			}
			// The next failure begins with a short backoff.
			l.fail(tt.inject)
			time.Sleep(3 * time.Second)
			if got := o.next(); len(got) < tt.again {
				t.Errorf("after a reply: %+v", got)
			}
			close(stop)
		})
	}
}

// floodEvery is a Watcher that calls at an interval, until the test stops it.
func floodEvery(interval time.Duration, end <-chan struct{}) func(string, func()) func() {
	return func(_ string, wake func()) func() {
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-time.After(interval):
					wake()
				case <-stop:
					return
				case <-end:
					return
				}
			}
		}()
		return func() { close(stop) }
	}
}

// A flood of wake-ups causes a read every 50 ms at most.
func TestObserveReadsAreBoundedInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newInspected(memory.New())
		stop := make(chan struct{})
		l.watch = floodEvery(time.Millisecond, stop)
		o := observe(t, locktest.NewClient(t, l), "job")
		time.Sleep(10 * time.Second)
		list := l.reads.all()
		if len(list) < 100 || len(list) > 201 {
			t.Errorf("%d reads in 10 s", len(list))
		}
		for i := range list[1:] {
			if d := list[i+1] - list[i]; d < 50*time.Millisecond {
				t.Fatalf("two reads within %v", d)
			}
		}
		if got := o.next(); len(got) != 1 {
			t.Errorf("%d yields of the same record", len(got))
		}
		close(stop)
		synctest.Wait()
		before := len(l.reads.all())
		time.Sleep(10 * time.Minute)
		if n := len(l.reads.all()) - before; n < 10*60/24 || n > 10*60/16+2 {
			t.Errorf("%d reads in 10 minutes at a poll interval of 20 s", n)
		}
	})
}

// The sequence ends with its context, with the consumer and with Shutdown, at once, also while a
// read is under way. No read and no watch outlives it, and its end is not yielded as an error.
func TestObserveEnds(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, during := range map[string]func(context.Context) error{"while it waits": nil, "during a read": hang} {
		t.Run(name, func(t *testing.T) {
			for what, end := range map[string]func(*observation, *holdfast.Client) error{
				"context":  func(o *observation, _ *holdfast.Client) error { o.cancel(); return nil },
				"Shutdown": func(_ *observation, c *holdfast.Client) error { return c.Shutdown(context.Background()) },
			} {
				synctest.Test(t, func(t *testing.T) {
					l := newInspected(memory.New()).withWatcher(true)
					c := locktest.NewClient(t, l)
					if during != nil {
						l.fail(during)
					}
					o := observe(t, c, "job")
					time.Sleep(time.Second) // within the time limit of a read
					want := 1
					if during != nil {
						want = 0
					}
					if got := o.next(); len(got) != want || l.watches.Load() != 1 {
						t.Errorf("%s: %d yields, %d watches", what, len(got), l.watches.Load())
					}
					ended := time.Now()
					if err := end(o, c); err != nil || !time.Now().Equal(ended) {
						t.Errorf("%s: after %v: %v", what, time.Since(ended), err)
					}
					o.ended(t, l)
					if got := o.next(); len(got) != 0 {
						t.Errorf("%s: then %+v", what, got)
					}
				})
			}
		})
	}
	locktest.Bubble(t, "by its consumer", func(t *testing.T) {
		l := newInspected(memory.New()).withWatcher(true)
		c := locktest.NewClient(t, l)
		for _, err := range c.Observe(t.Context(), "job") {
			if err != nil {
				t.Error(err)
			}
			break
		}
		l.fail(func(context.Context) error { return locktest.ErrInjected })
		for _, err := range c.Observe(t.Context(), "job") {
			if !errors.Is(err, locktest.ErrInjected) {
				t.Errorf("yielded %v", err)
			}
			break
		}
		if n := len(l.reads.all()); n != 2 || l.watches.Load() != 0 {
			t.Errorf("%d reads, %d watches", n, l.watches.Load())
		}
	})
	locktest.Bubble(t, "before it began", func(t *testing.T) {
		l := newInspected(memory.New())
		c := locktest.NewClient(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for r, err := range c.Observe(ctx, "job") {
			t.Errorf("after its context: %v, %v", r, err)
		}
		locktest.ShutDown(t, c)
		for r, err := range c.Observe(t.Context(), "job") {
			t.Errorf("after Shutdown: %v, %v", r, err)
		}
		if n := len(l.reads.all()); n != 0 {
			t.Errorf("%d reads", n)
		}
	})
}

// A Watcher reports releases only. A holder that comes after one is seen soon all the same, and a
// lock that stays free is read less and less often.
func TestObserveSeesTheNextHolderSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := newInspected(store.Locker()).withWatcher(true)
		o := observe(t, locktest.NewClient(t, l), "job")
		time.Sleep(time.Hour)
		if n := len(l.reads.all()); n > 400 { // the poll interval is about 15 s
			t.Errorf("%d reads of a free lock in an hour", n)
		}
		o.next()
		h := locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		locktest.Release(t, h)
		time.Sleep(time.Second)
		o.next()
		locktest.MustLock(t, locktest.NewClient(t, store.Locker()), "job")
		time.Sleep(3 * time.Second)
		got := o.next()
		if len(got) != 1 || got[0].record.State != driver.StateHeld {
			t.Errorf("3 s after the next grant: %+v", got)
		}
	})
}

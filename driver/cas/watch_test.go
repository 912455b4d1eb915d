package cas_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// A watch that begins while waking ends is notified of the end last, so its waiter polls.
func TestWakeWhileWakingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := make(chan struct{})
		failed := false
		watch := func(ctx context.Context, _ string, changed func(cas.Value)) error {
			if failed {
				<-ctx.Done()
				return ctx.Err()
			}
			changed(cas.Value{})
			select {
			case <-fail:
				failed = true
				return errNoAnswer
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		l := open(t, newStore(), cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: watch})
		defer l.Wake("n", "first", func(driver.Wakeup) {})()
		synctest.Wait()
		var got []driver.WakeupKind
		defer l.Wake("n", "second", func(up driver.Wakeup) {
			if up.Kind == driver.WakingBegan {
				close(fail)
				time.Sleep(time.Millisecond)
			}
			got = append(got, up.Kind)
		})()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(got) != 2 || got[0] != driver.WakingBegan || got[1] != driver.WakingEnded {
			t.Errorf("reported %v", got)
		}
	})
}

// A waiter that was passed over is woken by each of its watches.
func TestEachWatchOfAWaiterThatWasPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore()
		config := cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: store.watch}
		l, other := open(t, store, config), open(t, store, config)
		holder := mustAcquire(t, other, request("n", "holder", time.Minute))
		var woken [2]int
		for i := range woken {
			defer l.Wake("n", "waiter", func(up driver.Wakeup) {
				if up == (driver.Wakeup{}) {
					woken[i]++
				}
			})()
		}
		waits := request("n", "w", time.Minute)
		waits.Waiter, waits.QueueFor = "waiter", time.Hour
		_, err := l.TryAcquire(ctx, waits)
		synctest.Wait()
		before := woken
		if err := errors.Join(notHeld(err), other.Leave(ctx, "waiter", []string{"n"})); err != nil { // as a grant to the next one does
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if woken[0] != before[0]+1 || woken[1] != before[1]+1 {
			t.Errorf("woken %v times, and %v times before", woken, before)
		}
		mustRelease(t, other, holder)
	})
}

// Without an order, a reader that is faster than a release's wake-up does not keep the other readers waiting.
func TestUnorderedReaderThatIsFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		report := make(chan struct{})
		watch := func(ctx context.Context, _ string, changed func(cas.Value)) error {
			changed(cas.Value{})
			for {
				select {
				case <-report:
					changed(cas.Value{}) // the value is read: that of both changes
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		config := cas.Config{Info: driver.Info{Modes: driver.Modes{Shared: true}, Expiry: driver.ByServer}, Watch: watch, Unordered: true,
			ProbeRounds: -1}
		l, other := open(t, store, config), open(t, store, config)
		writer := mustAcquire(t, other, request("n", "writer", time.Hour))
		var woken atomic.Int32
		defer l.Wake("n", "", func(driver.Wakeup) { woken.Add(1) })()
		seen := func() (wakes int32) {
			before := woken.Load()
			report <- struct{}{}
			time.Sleep(time.Second) // longer than readPause
			return woken.Load() - before
		}
		read := func(id string, ttl time.Duration) driver.Lease {
			lease := mustAcquire(t, other, reading("n", id, ttl))
			return lease
		}
		synctest.Wait()
		seen() // the writer
		mustRelease(t, other, writer)
		faster := read("faster", time.Hour)
		if n := seen(); n != 1 {
			t.Errorf("woken %d times when a reader was faster, want 1: others may join it", n)
		}
		read("dead", 10*time.Second)
		if n := seen(); n != 0 {
			t.Errorf("woken %d times when another reader had joined, want 0", n)
		}
		time.Sleep(time.Minute)
		mustRelease(t, other, faster)
		if n := seen(); n != 1 {
			t.Errorf("woken %d times when the last reader that lived had left, want 1", n)
		}
	})
}

// Of waiters that have left nothing is kept, however long another one waits.
func TestNothingIsKeptOfWaitersThatHaveLeft(t *testing.T) {
	store := newStore()
	l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: store.watch})
	defer l.Wake("n", driver.NewWaiterID(), func(driver.Wakeup) {})()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for range 50_000 {
		waits := waiting("n", "w", time.Minute, driver.NewWaiterID())
		stop := l.Wake("n", waits.Waiter, func(driver.Wakeup) {})
		_, during := l.TryAcquire(ended, waits)
		stop()
		if _, after := l.TryAcquire(ended, waits); during == nil || after == nil {
			t.Fatal("granted in a context that has ended")
		}
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("50,000 waiters have left %d KiB", grown>>10)
	}
}

// A position that could not be written, because many others wrote theirs, is not reported: its waiter would rest, and no release would wake
// it. It is woken to ask again, once a second at most, until it has one.
func TestWaiterWithoutAPositionAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		config := cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: store.watch}
		l, other := open(t, store, config), open(t, store, config)
		holder := mustAcquire(t, other, request("n", "holder", time.Hour))
		ask := func(put putFunc, want int) {
			t.Helper()
			store.put = put
			_, err := l.TryAcquire(t.Context(), waiting("n", "w", time.Minute, "waiter"))
			store.put = nil
			var held *driver.HeldError
			if !errors.As(err, &held) || held.Record.Position != want || held.Record.Token != holder.Token {
				t.Fatalf("%v, want a refusal with position %d", err, want)
			}
		}
		refused := failing(cas.ErrConflict)
		ask(refused, 0)
		asks := 0
		defer l.Wake("n", "waiter", func(up driver.Wakeup) {
			if up.Kind != driver.MayBeFree {
				return
			}
			if asks++; up.After >= 2*time.Second {
				t.Errorf("asks after %v", up.After)
			}
		})()
		renew := func(times int) {
			t.Helper()
			for range times {
				time.Sleep(100 * time.Millisecond)
				holder = mustRenew(t, other, holder)
				synctest.Wait()
			}
		}
		if renew(25); asks < 2 || asks > 3 {
			t.Errorf("woken %d times within 2.5 s of changes, want once a second", asks)
		}
		ask(nil, 1)
		asks = 0
		if renew(25); asks != 0 {
			t.Errorf("a waiter with a position is woken %d times to ask for one", asks)
		}
		time.Sleep(30 * time.Second) // a third of its time is over: it is stored again
		ask(refused, 1)
	})
}

// Where a watch fails, many short waits for a lock one after another do not repeat it at once. Of the name nothing is kept.
func TestShortWaitsDoNotBypassTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		watch := func(context.Context, string, func(cas.Value)) error {
			attempts++
			return driver.Denied(errors.New("no right to watch"))
		}
		l := open(t, newStore(), cas.Config{Info: driver.Info{Expiry: driver.ByServer}, Watch: watch})
		for range 1000 {
			ended := false
			stop := l.Wake("n", "w", func(up driver.Wakeup) { ended = ended || up.Kind == driver.WakingEnded })
			synctest.Wait()
			stop()
			if time.Sleep(time.Millisecond); !ended {
				t.Fatal("a waiter is not notified that nothing wakes it")
			}
		}
		if attempts > 20 { // after 50 ms to 100 ms
			t.Errorf("%d attempts to watch in a second of 1,000 waits", attempts)
		}
		time.Sleep(time.Second)
		if n := l.Watched(); n != 0 {
			t.Errorf("%d names are kept", n)
		}
	})
}

package cas_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// telling is a store without a clock that returns the present value with each refusal.
type telling struct{ *memStore }

func (s telling) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	done, err := s.memStore.Put(ctx, key, data, version)
	if errors.Is(err, cas.ErrConflict) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return done, &cas.RefusedError{Present: s.values[key]}
	}
	return done, err
}

// Of clients that race for a free lock those that lose are refused by what came with the refusal of their write.
func TestRefusedSavesARead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.now = nil
		s.delay = func() time.Duration { return 10 * time.Millisecond }
		l := open(t, telling{s}, cas.Config{})
		const clients = 5
		var wg sync.WaitGroup
		held := make(chan error, clients)
		for i := range clients {
			wg.Go(func() {
				_, err := l.TryAcquire(t.Context(), request("job", string(rune('a'+i)), time.Minute))
				held <- err
			})
		}
		wg.Wait()
		close(held)
		refused := 0
		for err := range held {
			if errors.Is(err, driver.ErrHeld) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused != clients-1 || s.gets != clients || s.puts != clients {
			t.Errorf("%d of %d refused by %d reads and %d writes", refused, clients, s.gets, s.puts)
		}
	})
}

// What comes with a refusal counts as seen from the end of that write, never from before: a lease that was renewed meanwhile
// lasts its whole TTL. A holder whose lease was taken over learns that from the refusal of its renewal alone.
func TestRefusedIsSeenNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.now = nil
		l, other := open(t, telling{s}, cas.Config{}), open(t, telling{s}, cas.Config{})
		const ttl = time.Minute
		lease := mustAcquire(t, other, request("job", "a", ttl))
		ask := request("job", "b", ttl)
		if _, err := l.TryAcquire(t.Context(), ask); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
		time.Sleep(ttl + ttl/2) // the holder was silent for so long, and renews while the other one takes over
		s.put = func(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
			s.put = nil
			mustRenew(t, other, lease)
			return s.apply(key, data, version)
		}
		if _, err := l.TryAcquire(t.Context(), ask); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("the holder has renewed: %v", err)
		}
		time.Sleep(ttl - time.Second)
		if _, err := l.TryAcquire(t.Context(), ask); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("a whole TTL has not passed: %v", err)
		}
		time.Sleep(2 * time.Second)
		taken := mustAcquire(t, l, ask)
		if err := other.BreakNow(t.Context(), "job", driver.BreakToken(taken.Token)); err != nil {
			t.Fatal(err)
		}
		reads := s.gets
		if _, err := l.Renew(t.Context(), taken); !errors.Is(err, driver.ErrLost) || s.gets != reads {
			t.Errorf("%v after %d reads", err, s.gets-reads)
		}
	})
}

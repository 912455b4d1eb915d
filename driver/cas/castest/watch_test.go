package castest_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
)

// watchedStore is a store in memory that reports its writes to subscribers, whose connections can be cut.
type watchedStore struct {
	cas.Store
	mu          sync.Mutex
	values      map[string][]byte
	writes      int
	last        cas.Value // that was written
	subscribers map[chan struct{}]bool
}

func (s *watchedStore) Get(_ context.Context, key string) (cas.Value, error) {
	time.Sleep(callTime)
	s.mu.Lock()
	defer s.mu.Unlock()
	return cas.Value{Data: s.values[key], Version: strconv.Itoa(s.writes)}, nil
}

func (s *watchedStore) Put(_ context.Context, key string, data []byte, _ string) (cas.Written, error) {
	time.Sleep(callTime)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string][]byte{}
	}
	s.values[key] = data
	s.writes++
	s.last = cas.Value{Data: data, Version: strconv.Itoa(s.writes)}
	for c := range s.subscribers {
		c <- struct{}{}
	}
	return cas.Written{}, nil
}

// callTime is how long a call takes.
const callTime = time.Millisecond

func (s *watchedStore) subscribe() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers == nil {
		s.subscribers = map[chan struct{}]bool{}
	}
	c := make(chan struct{}, 1000)
	s.subscribers[c] = true
	return c
}

// cut closes the channels of all subscribers.
func (s *watchedStore) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.subscribers {
		close(c)
	}
	clear(s.subscribers)
}

// Each fault of a Watch breaks its clause, and no other.
func TestRunWatch(t *testing.T) {
	type watch func(s *watchedStore, ctx context.Context, changed func(cas.Value)) error
	right := func(s *watchedStore, ctx context.Context, changed func(cas.Value)) error {
		c := s.subscribe()
		changed(cas.Value{})
		for {
			select {
			case _, open := <-c:
				if !open {
					return errors.New("cut")
				}
				changed(cas.Value{})
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	// It reports so often before it subscribes, and misses what is written meanwhile.
	tooEarly := func(reports int, late time.Duration) watch {
		return func(s *watchedStore, ctx context.Context, changed func(cas.Value)) error {
			for range reports {
				changed(cas.Value{})
			}
			time.Sleep(late)
			first := true
			return right(s, ctx, func(v cas.Value) {
				if !first {
					changed(v)
				}
				first = false // it was reported already
			})
		}
	}
	for what, c := range map[string]struct {
		watch  watch
		broken string
	}{
		"right": {watch: right},
		"does not end": {broken: "ends with its context", watch: func(s *watchedStore, ctx context.Context, changed func(cas.Value)) error {
			err := right(s, ctx, changed)
			if ctx.Err() != nil {
				time.Sleep(77 * time.Second)
			}
			return err
		}},
		"too early":        {broken: "is in effect when it says so", watch: tooEarly(1, 10*callTime)},
		"too early, twice": {broken: "is in effect when it says so", watch: tooEarly(2, 10*callTime)},
		"too early, often": {broken: "is in effect when it says so", watch: tooEarly(4, 4*callTime)},
		"with values": {watch: func(s *watchedStore, ctx context.Context, changed func(cas.Value)) error {
			return right(s, ctx, func(cas.Value) {
				s.mu.Lock()
				defer s.mu.Unlock()
				changed(s.last)
			})
		}},
		"ends silently": {broken: "survives a cut", watch: func(s *watchedStore, ctx context.Context, changed func(cas.Value)) error {
			if err := right(s, ctx, changed); ctx.Err() != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &watchedStore{}
				failed := castest.FailedWatch(t.Context(), castest.Watched{Store: s, Cut: s.cut,
					Watch: func(ctx context.Context, _ string, changed func(cas.Value)) error { return c.watch(s, ctx, changed) }})
				if c.broken != "" && failed[c.broken] == nil || c.broken == "" && len(failed) > 0 {
					t.Errorf("broken: %v, want %q", failed, c.broken)
				}
				time.Sleep(2 * time.Minute) // until all have returned
			})
		})
	}
	t.Run("run", func(t *testing.T) {
		s := &watchedStore{}
		castest.RunWatch(t, castest.Watched{Store: s, Cut: s.cut,
			Watch: func(ctx context.Context, _ string, changed func(cas.Value)) error { return right(s, ctx, changed) }})
	})
}

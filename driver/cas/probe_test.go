package cas_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// Open refuses a store on which two clients could hold one lock.
func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(h *memStore)
		expiry driver.Expiry
		want   string // of the error; empty: none
	}{
		"a good store":      {spoil: func(*memStore) {}},
		"with a clock":      {spoil: func(*memStore) {}, expiry: driver.ByServer},
		"an expected clock": {spoil: func(h *memStore) { h.now = nil }, expiry: driver.ByServer, want: "no time"},
		"two writes win":    {spoil: func(h *memStore) { h.put = h.putSlowly }, want: "writes with the same condition were done"},
		"two now and then": {spoil: func(h *memStore) { h.put = every(40, h.putSlowly, h.apply) },
			want: "writes with the same condition were done"},
		"conditions ignored": {spoil: func(h *memStore) { h.put = h.ignore(func(string) bool { return true }) },
			want: "two clients could hold one lock"},
		"if absent ignored": {spoil: func(h *memStore) { h.put = h.ignore(func(v string) bool { return v == "" }) },
			want: "two clients could hold one lock"},
		"if match ignored": {spoil: func(h *memStore) { h.put = h.ignore(func(v string) bool { return v != "" }) },
			want: "two clients could hold one lock"},
		// Writes that are not safe are done all the same: two of them with one condition are proof against the store.
		"not safe":                 {spoil: func(h *memStore) { h.put = notSafe(h.ignore(func(string) bool { return false })) }},
		"two writes win, not safe": {spoil: func(h *memStore) { h.put = notSafe(h.putSlowly) }, want: "writes with the same condition were done"},
		"conditions ignored, not safe": {spoil: func(h *memStore) { h.put = notSafe(h.ignore(func(string) bool { return true })) },
			want: "does not keep the condition"},
		"if absent ignored, not safe": {spoil: func(h *memStore) { h.put = notSafe(h.ignore(func(v string) bool { return v == "" })) },
			want: "does not keep the condition"},
		"a value is made where a version was demanded": {
			spoil: func(h *memStore) {
				h.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
					if h.read(key).Version == "" {
						version = ""
					}
					return h.apply(key, data, version)
				}
			}, want: "there was no value"},
		"refused but done": {
			spoil: func(h *memStore) {
				h.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
					next, err := h.apply(key, data, version)
					if err == nil {
						return next, cas.ErrConflict
					}
					return next, err
				}
			}, want: "refused, but done"},
		"another error than ErrConflict": {
			spoil: func(h *memStore) {
				h.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
					next, err := h.apply(key, data, version)
					if errors.Is(err, cas.ErrConflict) {
						err = errors.New("412 Precondition Failed")
					}
					return next, err
				}
			}, want: "must return ErrConflict: "},
		"another error now and then": {
			spoil: func(h *memStore) {
				var refused atomic.Int32
				h.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
					next, err := h.apply(key, data, version)
					if errors.Is(err, cas.ErrConflict) && version == "" && refused.Add(1) == cas.Racers { // the others are those that lost the race
						err = errors.New("503 Server Busy")
					}
					return next, err
				}
			}},
		"another version returned": {
			spoil: func(h *memStore) {
				h.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
					next, err := h.apply(key, data, version)
					next.Version += "?"
					return next, err
				}
			}, want: "a write returned the version"},
		"old values read": {
			spoil: func(h *memStore) {
				first := h.read(cas.ProbeKey)
				h.get = func(context.Context, string) (cas.Value, error) { return first, nil }
			}, want: "two clients could hold one lock"},
		"all writes are refused": {
			spoil: func(h *memStore) { h.put = failing(cas.ErrConflict) }, want: "all writes were refused"},
		"all writes of a slow race are refused": { // another program's write is under way for as long
			spoil: func(h *memStore) {
				var sent atomic.Int32
				h.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
					if sent.Add(1) <= cas.Racers {
						time.Sleep(3 * time.Second)
						return cas.Written{}, cas.ErrConflict
					}
					return h.apply(key, data, version)
				}
			}},
		"refused, and done later": {
			spoil: func(h *memStore) {
				var late atomic.Int32
				h.put = func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
					if key == cas.ProbeKey && late.Add(1)%cas.Racers == 1 {
						time.AfterFunc(time.Millisecond/2, func() { _, _ = h.apply(key, data, version) })
					}
					return cas.Written{}, cas.ErrConflict
				}
			}, want: "refused, but done"},
		"no right to write": {
			spoil: func(h *memStore) { h.put = failing(driver.Denied(errors.New("access denied"))) }, want: "access denied"},
		"no answer": {
			spoil: func(h *memStore) {
				h.put = func(ctx context.Context, _ string, _ []byte, _ string) (cas.Written, error) {
					<-ctx.Done()
					return cas.Written{}, ctx.Err()
				}
			}, want: "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newStore()
				c.spoil(h)
				for range 2 { // the second time there is a value
					l, err := cas.Open(t.Context(), h, with(cas.Config{Info: driver.Info{Expiry: c.expiry}, ProbeRounds: 4}))
					if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
						t.Fatalf("Open: %v, want %q", err, c.want)
					}
					if err != nil {
						if !strings.HasPrefix(err.Error(), "holdfast: probe on memory with versions: ") {
							t.Errorf("Open: %v", err)
						}
						continue
					}
					if found := findings(t, l)["conditional writes"].Level; found != driver.LevelOK {
						t.Errorf("conditional writes are %v", found)
					}
					if err := l.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// putSlowly compares and writes in two steps.
func (s *memStore) putSlowly(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
	if s.read(key).Version != version {
		return cas.Written{}, cas.ErrConflict
	}
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written(s.set(key, data)), nil
}

// every makes each of n calls after another the rare one of two kinds, with seven that follow.
func every(n int, rare putFunc, normal func(string, []byte, string) (cas.Written, error)) putFunc {
	turn := make(chan int, 1)
	turn <- 0
	return func(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
		i := <-turn
		turn <- i + 1
		if i%n >= n-16 {
			return rare(ctx, key, data, version)
		}
		return normal(key, data, version)
	}
}

// ignore ignores some conditions.
func (s *memStore) ignore(which func(version string) bool) putFunc {
	return func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
		if which(version) {
			version = s.read(key).Version
		}
		return s.apply(key, data, version)
	}
}

// notSafe does writes that may be forgotten.
func notSafe(put putFunc) putFunc {
	return func(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
		w, err := put(ctx, key, data, version)
		if err == nil {
			err = cas.ErrNotSafe
		}
		return w, err
	}
}

// underWay refuses a write while another of its key is under way, which reads show only when it is done.
func (s *memStore) underWay() putFunc {
	free := make(chan struct{}, 1)
	free <- struct{}{}
	return func(_ context.Context, key string, data []byte, version string) (cas.Written, error) {
		select {
		case <-free:
			defer func() { free <- struct{}{} }()
		default:
			return cas.Written{}, cas.ErrConflict
		}
		if s.read(key).Version != version {
			return cas.Written{}, cas.ErrConflict
		}
		time.Sleep(5 * time.Millisecond)
		return s.apply(key, data, version)
	}
}

// Several processes may be started at the same time, on any kind of store.
func TestProbesOfManyProcesses(t *testing.T) {
	t.Run("at once", func(t *testing.T) { manyProbes(t, func(*memStore) {}) })
	t.Run("under way", func(t *testing.T) { manyProbes(t, func(s *memStore) { s.put = s.underWay() }) })
}

func manyProbes(t *testing.T, change func(*memStore)) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.delay = randomDelay(1)
		change(store)
		errs := make(chan error)
		for range 20 {
			go func() {
				l, err := cas.Open(t.Context(), store, with(cas.Config{ProbeRounds: 4}))
				if err == nil {
					err = l.Close(t.Context())
				}
				errs <- err
			}()
		}
		for range 20 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	for want, change := range map[string]func(*cas.Config){
		"Info.Backend":  func(c *cas.Config) { c.Info.Backend = "" },
		"Info.Expiry":   func(c *cas.Config) { c.Info.Expiry = 0 },
		"Info.Failover": func(c *cas.Config) { c.Info.Failover = 0 },
		"Info.Modes": func(c *cas.Config) {
			c.Info.Modes.Shared, c.Info.Expiry, c.Watch = true, driver.ByObservation, nil
		},
		"Config.ClockStep": func(c *cas.Config) { c.ClockStep = -1 },
		"Config.CallLimit": func(c *cas.Config) { c.CallLimit = -1 },
		"Info.History":     func(c *cas.Config) { c.Info.History = driver.MaxHistory + 1 },
	} {
		config := with(cas.Config{})
		change(&config)
		if _, err := cas.Open(t.Context(), newStore(), config); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := cas.Open(t.Context(), nil, with(cas.Config{})); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("without a store: %v", err)
	}
}

// A store that does not answer is not one that is missing, and is noticed when somebody asks.
func TestMissingStore(t *testing.T) {
	store := newStore()
	l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, CallLimit: 100 * time.Millisecond})
	if missing, err := driver.MissingStore(t.Context(), l); missing != "" || err != nil {
		t.Error(missing, err)
	}
	store.mu.Lock()
	store.stalled[""] = make(chan struct{})
	store.mu.Unlock()
	if missing, err := driver.MissingStore(t.Context(), l); missing != "" || err == nil || driver.OutcomeKnown(err) {
		t.Error(missing, err)
	}
}

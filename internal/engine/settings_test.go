package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
	"github.com/holdfast-go/holdfast/partitions"
)

// "For ever" is commonly written as the largest duration.
func TestCorner_LargestDurations(t *testing.T) {
	const ever = time.Duration(math.MaxInt64)
	aged := func(tb testing.TB, store *memory.Store, opts ...holdfast.ClientOption) *holdfast.Client {
		start := time.Now()
		return locktest.NewClient(tb, store.Locker(), append(opts, holdfast.WithElapsed(func() time.Duration {
			return time.Since(start) + time.Hour // the machine has been up for an hour
		}))...)
	}
	t.Run("IdleLimit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := locktest.NewRunner(t, aged(t, memory.NewStore()), holdfast.WithIdleLimit(ever))
			if _, err := r.RunTaskOnLeader(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if !r.IsLeader() {
				t.Error("leadership was given up at once")
			}
		})
	})
	t.Run("StallTimeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := locktest.NewRunner(t, aged(t, memory.NewStore()), holdfast.WithStallTimeout(ever))
			_, err := r.RunTaskOnLeader(t.Context(), func(ctx context.Context) error { time.Sleep(time.Second); return context.Cause(ctx) })
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("MinHold", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := locktest.NewRunner(t, aged(t, memory.NewStore()), holdfast.WithMinHold(ever))
			done := locktest.Campaign(t.Context(), r, func(context.Context) error { return nil })
			time.Sleep(time.Second)
			locktest.CheckPending(t, done, "Run")
			_ = r.Close(t.Context())
		})
	})
	t.Run("CoolDown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := locktest.NewRunner(t, aged(t, memory.NewStore()), holdfast.WithCoolDown(ever))
			nothing := func(context.Context) error { return nil }
			_, _ = r.RunTaskOnLeader(t.Context(), nothing)
			_ = r.StepDown(t.Context())
			if ran, _ := r.RunTaskOnLeader(t.Context(), nothing); ran {
				t.Error("no cool-down")
			}
		})
	})
	t.Run("PollInterval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
				asked.Add(1)
				return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name}}
			}}, holdfast.WithPollInterval(ever))
			for i := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, _ = c.Lock(ctx, fmt.Sprint(i))
				cancel()
			}
			if n := asked.Load(); n > 20 {
				t.Errorf("20 waiters that are not to poll asked %d times", n)
			}
		})
	})
	t.Run("remaining time", func(t *testing.T) { // what time.Time.Sub saturates at
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
				asked.Add(1)
				return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, Remaining: ever, RemainingKnown: true}}
			}}, holdfast.WithPollInterval(10*time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
			if n := asked.Load(); n > 10 {
				t.Errorf("asked %d times in a minute at a poll interval of 10 s", n)
			}
		})
	})
	t.Run("TTL of the holder seen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var once sync.Once
			c := locktest.NewClient(t, locktest.Scripted{Locker: memory.New(), OnAcquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
				if !req.Replace.IsZero() {
					once.Do(func() {
						t.Errorf("a waiter of %v takes over from a live holder whose TTL is %v", 200*time.Millisecond, ever)
					})
				}
				return holdfast.Lease{}, &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, TTL: ever, Revision: driver.NewRevision("r")}}
			}})
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, _ = c.Lock(ctx, "job")
		})
	})
	t.Run("TTL without a limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			c, err := holdfast.New(locktest.Scripted{Locker: memory.New(), Allowed: &driver.Limits{},
				OnAcquire: func(_ context.Context, req driver.Request) (holdfast.Lease, error) {
					return holdfast.Lease{Name: req.Name, ID: req.ID, Token: 1, TTL: req.TTL}, nil
				}}, holdfast.WithTTL(ever), holdfast.WithElapsed(func() time.Duration { return time.Since(start) + 100*24*time.Hour }))
			if errors.Is(err, driver.ErrInvalid) {
				return
			}
			defer func() { _ = c.Shutdown(context.Background()) }()
			h, err := c.TryLock(t.Context(), "job", holdfast.WithGrace(time.Hour))
			if err == nil {
				err = h.Err()
			}
			if err != nil && !errors.Is(err, driver.ErrInvalid) {
				t.Error(err)
			}
		})
	})
}

// With a long TTL every pause and every limit that is a share of it grows too: one
// failed call must not cost a quarter of an hour.
func TestCorner_LongTTL(t *testing.T) {
	const ttl = 24 * time.Hour
	nothing := func(context.Context) error { return nil }
	t.Run("one release fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.NewClient(t, locktest.NewFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpRelease && n == 1 {
					return locktest.Fault{Refuse: locktest.ErrInjected}
				}
				return locktest.Fault{}
			}), holdfast.WithTTL(ttl))
			start := time.Now()
			_ = c.Do(t.Context(), "job", nothing)
			if d := time.Since(start); d > time.Minute {
				t.Errorf("Do returned %v after its function", d)
			}
		})
	})
	t.Run("one release hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.NewClient(t, locktest.NewFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpRelease && n == 1 {
					return locktest.Fault{Hang: true}
				}
				return locktest.Fault{}
			}), holdfast.WithTTL(ttl))
			start := time.Now()
			_ = c.Do(t.Context(), "job", nothing)
			if d := time.Since(start); d > time.Minute {
				t.Errorf("Do returned %v after its function", d)
			}
		})
	})
	t.Run("one attempt hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.NewClient(t, locktest.NewFaulty(t, memory.New(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpAcquire && n == 1 {
					return locktest.Fault{Hang: true}
				}
				return locktest.Fault{}
			}), holdfast.WithTTL(ttl))
			start := time.Now()
			_ = locktest.MustLock(t, c, "job").Release(t.Context())
			if d := time.Since(start); d > time.Minute {
				t.Errorf("a free lock was granted after %v", d)
			}
		})
	})
	t.Run("an acquire lands 10 s late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memory.NewStore()
			c := locktest.NewClient(t, locktest.NewFaulty(t, store.Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
				if op == locktest.OpAcquire && n == 1 {
					return locktest.Fault{Late: 10 * time.Second}
				}
				return locktest.Fault{}
			}), holdfast.WithTTL(ttl))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _ = c.TryLock(ctx, "job")
			time.Sleep(5 * time.Minute)
			if locktest.IsHeld(t, store, "job") {
				t.Error("still held 5 minutes later")
			}
		})
	})
}

// Held: a TTL of a millisecond neither spins nor gets stuck.
func TestCorner_TinyTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		check := locktest.NewExclusive(t)
		var wg sync.WaitGroup
		for range 3 {
			f := locktest.NewFaulty(t, store.Locker(), nil)
			c := locktest.NewClient(t, f, holdfast.WithTTL(time.Millisecond))
			wg.Go(func() {
				for range 50 {
					_ = c.Do(t.Context(), "job", func(ctx context.Context) error {
						token, _ := holdfast.TokenFromContext(ctx)
						check.Enter(ctx, "job", token)
						time.Sleep(10 * time.Millisecond)
						return nil
					})
				}
				if f.Total() > 30000 {
					t.Errorf("%d calls", f.Total())
				}
			})
		}
		wg.Wait()
	})
}

// Nothing panics on bad input.
func TestCorner_NilArguments(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, c *holdfast.Client) error{
		"Do without a function": func(t *testing.T, c *holdfast.Client) error { return c.Do(t.Context(), "job", nil) },
		"TryLock, nil option": func(t *testing.T, c *holdfast.Client) error {
			_, err := c.TryLock(t.Context(), "job", nil)
			return err
		},
		"New, nil option": func(*testing.T, *holdfast.Client) error {
			_, err := holdfast.New(memory.New(), nil)
			return err
		},
		"New, nil observer": func(*testing.T, *holdfast.Client) error {
			_, err := holdfast.New(memory.New(), holdfast.WithObserver(nil))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := locktest.NewClient(t, memory.New())
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			if err := call(t, c); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("err = %v, want ErrInvalid", err)
			}
		})
	}
}

// A connection string in place of a URL must not show its key.
func TestCorner_OpenLockerShowsNoCredential(t *testing.T) {
	for _, url := range []string{
		"AccountName=app;AccountKey=s3cretKEYs3cretKEY==;BlobEndpoint=https://app.blob.core.windows.net/",
		"s3cretKEY@db1:27017/app",
	} {
		_, err := driver.Open(t.Context(), url)
		if err == nil || strings.Contains(err.Error(), "s3cretKEY") {
			t.Errorf("err = %v", err)
		}
	}
}

// The caller may change its bytes after WithData.
func TestWithDataKeepsNoSliceOfTheCaller(t *testing.T) {
	store := memory.NewStore()
	c := locktest.NewClient(t, store.Locker())
	data := []byte("first")
	option := holdfast.WithData(data)
	copy(data, "later")
	locktest.MustLock(t, c, "job", option)
	r, err := c.Inspect(t.Context(), "job")
	if err != nil || string(r.Data) != "first" {
		t.Errorf("the record has %q, %v", r.Data, err)
	}
}

// Errors, leases and requests show durations as people write them.
func TestDurationsAreShownInShort(t *testing.T) {
	c := locktest.NewClient(t, memory.New())
	runner := func(o holdfast.RunnerOption) error {
		_, err := holdfast.NewLeaderAwareRunner(c, "x", o)
		return err
	}
	spread := func(o partitions.Option) error {
		_, err := partitions.New(c, "x", 1, func(context.Context, int) error { return nil }, o)
		return err
	}
	for want, err := range map[string]error{
		"CoolDown -1m is":       runner(holdfast.WithCoolDown(-time.Minute)),
		"Backoff 1h to 1m is":   runner(holdfast.WithRestart(holdfast.Backoff{Initial: time.Hour, Max: time.Minute})),
		"RebalanceEvery -1m is": spread(partitions.WithRebalanceEvery(-time.Minute)),
		"at least 1m, what": func() error {
			_, err := c.Lock(t.Context(), "x", holdfast.WithTTL(1000*time.Minute), holdfast.WithGrace(time.Second))
			return err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if s := (holdfast.Lease{TTL: time.Minute}).String(); !strings.HasSuffix(s, "TTL 1m") {
		t.Error(s)
	}
	if s := (driver.Request{TTL: time.Minute}).String(); !strings.HasSuffix(s, "TTL 1m") {
		t.Error(s)
	}
}

func TestOptionsAreCheckedTogether(t *testing.T) {
	c := locktest.NewClient(t, narrow{memory.New()}, holdfast.WithOwner("me"))
	for name, tc := range map[string]struct {
		name  string
		opts  []holdfast.Option
		field string
		rule  string
	}{
		"TTL too short":        {"x", []holdfast.Option{holdfast.WithTTL(time.Second)}, "TTL", "from 15s to 1m in steps of 1s on this backend (elsewhere it is less)"},
		"TTL too long":         {"x", []holdfast.Option{holdfast.WithTTL(time.Hour)}, "TTL", "from 15s to 1m"},
		"TTL between steps":    {"x", []holdfast.Option{holdfast.WithTTL(15500 * time.Millisecond)}, "TTL", "steps of 1s"},
		"TTL zero":             {"x", []holdfast.Option{holdfast.WithTTL(0)}, "TTL", "from 15s"},
		"grace zero":           {"x", []holdfast.Option{holdfast.WithGrace(0)}, "Grace", "more than 0"},
		"grace above TTL":      {"x", []holdfast.Option{holdfast.WithGrace(time.Minute)}, "Grace", "less than the TTL of 30s"},
		"try above grace":      {"x", []holdfast.Option{holdfast.WithRequestTimeout(6 * time.Second)}, "RequestTimeout", "less than the grace of 5s"},
		"renewal too late":     {"x", []holdfast.Option{holdfast.WithRenewEvery(23 * time.Second)}, "RenewEvery", "at most 22s"},
		"poll negative":        {"x", []holdfast.Option{holdfast.WithPollInterval(-1)}, "PollInterval", "more than 0"},
		"owner too long":       {"x", []holdfast.Option{holdfast.WithOwner("12345678901")}, "Owner", "0 to 10 bytes"},
		"data too long":        {"x", []holdfast.Option{holdfast.WithData([]byte("12345"))}, "Data", "at most 4 bytes"},
		"name empty":           {"", nil, "Name", "1 to 10 bytes"},
		"name too long":        {strings.Repeat("é", 100), nil, "Name", "1 to 10 bytes"},
		"name not valid UTF-8": {"\xff", nil, "Name", "valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(from string, err error) {
				t.Helper()
				var invalid *holdfast.InvalidError
				if !errors.As(err, &invalid) || !errors.Is(err, driver.ErrInvalid) || invalid.Field != tc.field || !strings.Contains(err.Error(), tc.rule) {
					t.Errorf("%s: %v; want field %s and rule %q", from, err, tc.field, tc.rule)
				}
			}
			_, err := c.Lock(t.Context(), tc.name, tc.opts...)
			check("Lock", err)
			_, err = c.TryLock(t.Context(), tc.name, tc.opts...)
			check("TryLock", err)
			check("Do", c.Do(t.Context(), tc.name, func(context.Context) error { t.Error("run"); return nil }, tc.opts...))
			var ropts []holdfast.RunnerOption
			var copts []holdfast.ClientOption
			for _, o := range tc.opts {
				ropts, copts = append(ropts, o), append(copts, o)
			}
			_, err = holdfast.NewLeaderAwareRunner(c, tc.name, ropts...)
			check("NewLeaderAwareRunner", err)
			if tc.field != "Name" {
				_, err = holdfast.New(narrow{memory.New()}, append([]holdfast.ClientOption{holdfast.WithOwner("me")}, copts...)...)
				check("New", err)
			}
		})
	}
	// The default TTL adapts to the backend; a given one never does.
	h := locktest.MustLock(t, c, "x")
	if h.Lease().TTL != 30*time.Second {
		t.Errorf("default TTL %v", h.Lease().TTL)
	}
	_ = h.Release(t.Context())
}

func TestOpen(t *testing.T) {
	for raw, rule := range map[string]string{
		"":                          "mem",
		"no-scheme":                 "mem",
		"redis://u:secret@h/":       "is the driver imported?",
		"mem:?secret=1&b=2":         "has no URL parameters",
		"://u:secret@h":             "mem",
		"MONGODBX://u:secret@h?a=b": "is the driver imported?",
	} {
		_, err := holdfast.Open(t.Context(), raw)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), rule) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("Open(%q): %v", raw, err)
		}
	}
	if _, err := holdfast.Open(t.Context(), "mem:", holdfast.WithTTL(-1)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Open with a bad option: %v", err)
	}
	c, err := holdfast.Open(t.Context(), "mem:")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Locker().(*memory.Locker); !ok {
		t.Errorf("Locker is a %T", c.Locker())
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	err = driver.CheckParams(url.Values{"b": nil, "z": nil}, "c", "b", "a")
	if err == nil || !strings.Contains(err.Error(), `"z"`) || !strings.Contains(err.Error(), "one of a, b, c") {
		t.Errorf("CheckParams: %v", err)
	}
}

// A lease ID lets its bearer release the lock: no way of printing shows it.
func TestNoLeaseIDIsPrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, log, observed bytes.Buffer // each has one writer
		logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		f := locktest.NewFaulty(t, memory.NewStore().Locker(), func(op string, n int, _ holdfast.Lease) locktest.Fault {
			if n%2 == 0 {
				return locktest.Fault{Lose: locktest.ErrInjected}
			}
			return locktest.Fault{}
		})
		c := locktest.NewClient(t, f, holdfast.WithLogger(logger), holdfast.WithObserver(func(e holdfast.Event) { fmt.Fprintln(&observed, e) }))
		h := locktest.MustLock(t, c, "job", holdfast.WithData([]byte("data-secret")))
		id := h.Lease().ID
		_, err := c.TryLock(t.Context(), "job")
		req := driver.Request{Name: "job", ID: id, TTL: time.Second, Data: []byte("data-secret")}
		synctest.Wait()
		for _, v := range []any{h.Lease(), req, err, driver.NewRevision(id.Reveal()), []holdfast.Lease{h.Lease()}, struct{ L holdfast.Lease }{h.Lease()}} {
			fmt.Fprintf(&out, "%v %+v %#v %s\n", v, v, v, v)
			logger.Info("value", "v", v)
			b, _ := json.Marshal(v)
			out.Write(b)
		}
		time.Sleep(time.Hour)
		_ = h.Release(t.Context())
		synctest.Wait()
		if text := out.String() + log.String() + observed.String(); strings.Contains(text, id.Reveal()) || strings.Contains(text, "data-secret") {
			t.Errorf("the lease ID or the data is printed:\n%s", text)
		}
		if out.Len() < 500 || log.Len() < 500 || observed.Len() < 500 {
			t.Error("nothing was printed")
		}
	})
}

package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// The caller may change its slice after WithData.
func TestWithDataCopiesItsSlice(t *testing.T) {
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
func TestDurationsArePrintedAsWritten(t *testing.T) {
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
		"at least 1m, the clock drift": func() error {
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
		"TTL too short": {"x", []holdfast.Option{holdfast.WithTTL(time.Second)}, "TTL",
			"from 15s to 1m in steps of 1s on this backend (elsewhere it is less)"},
		"TTL too long":      {"x", []holdfast.Option{holdfast.WithTTL(time.Hour)}, "TTL", "from 15s to 1m"},
		"TTL between steps": {"x", []holdfast.Option{holdfast.WithTTL(15500 * time.Millisecond)}, "TTL", "steps of 1s"},
		"TTL zero":          {"x", []holdfast.Option{holdfast.WithTTL(0)}, "TTL", "from 15s"},
		"grace zero":        {"x", []holdfast.Option{holdfast.WithGrace(0)}, "Grace", "more than 0"},
		"grace above TTL":   {"x", []holdfast.Option{holdfast.WithGrace(time.Minute)}, "Grace", "less than the TTL of 30s"},
		"try above grace": {"x", []holdfast.Option{holdfast.WithRequestTimeout(6 * time.Second)}, "RequestTimeout",
			"less than the grace of 5s"},
		"renewal too late":     {"x", []holdfast.Option{holdfast.WithRenewEvery(23 * time.Second)}, "RenewEvery", "at most 22s"},
		"poll negative":        {"x", []holdfast.Option{holdfast.WithPollInterval(-1)}, "PollInterval", "more than 0"},
		"owner too long":       {"x", []holdfast.Option{holdfast.WithOwner("12345678901")}, "Owner", "0 to 10 bytes"},
		"data too long":        {"x", []holdfast.Option{holdfast.WithData([]byte("12345"))}, "Data", "at most 4 bytes"},
		"name empty":           {"", nil, "Name", "1 to 10 bytes"},
		"name too long":        {strings.Repeat("é", 100), nil, "Name", "1 to 10 bytes"},
		"name not valid UTF-8": {"\xff", nil, "Name", "valid UTF-8"},
		"no slots":             {"x", []holdfast.Option{holdfast.WithSlots(0)}, "Slots", "Slots 0 is"},
		"negative slots":       {"x", []holdfast.Option{holdfast.WithSlots(-1)}, "Slots", "Slots -1 is"},
		"too many slots":       {"x", []holdfast.Option{holdfast.WithSlots(1001)}, "Slots", "Slots 1001 is"},
		"name and slot":        {"1234567", []holdfast.Option{holdfast.WithSlots(100)}, "Name", ""},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(from string, err error) {
				t.Helper()
				var invalid *holdfast.InvalidError
				if !errors.As(err, &invalid) || !errors.Is(err, driver.ErrInvalid) || invalid.Field != tc.field ||
					!strings.Contains(err.Error(), tc.rule) {
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
	// The default TTL adapts to the backend; a TTL that was set does not.
	h := locktest.MustLock(t, c, "x")
	if h.Lease().TTL != 30*time.Second {
		t.Errorf("default TTL %v", h.Lease().TTL)
	}
	_ = h.Release(t.Context())
	locktest.MustTryLock(t, c, "1234567", holdfast.WithSlots(99))
	locktest.MustTryLock(t, c, "x", holdfast.WithSlots(1000))
}

func TestOpen(t *testing.T) {
	for raw, rule := range map[string]string{
		"":                          "mem",
		"no-scheme":                 "mem",
		"consul://u:secret@h/":      "is the driver imported?",
		"mongodb+srv://u:secret@h/": `import _ "github.com/holdfast-go/holdfast/drivers/mongo"`,
		"azblob://secret@/b":        `import _ "github.com/holdfast-go/holdfast/drivers/azblob"`,
		"mem:?secret=1&b=2":         "must be one of history",
		"://u:secret@h":             "mem",
		"MONGODBX://u:secret@h?a=b": "is the driver imported?",
		"AccountName=app;AccountKey=secret@secret@==;BlobEndpoint=https://app.blob.core.windows.net/": "", // no URL
		"secret@db1:27017/app": "",
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
	locktest.ShutDown(t, c)
	err = driver.CheckParams(url.Values{"b": nil, "z": nil}, "c", "b", "a")
	if err == nil || !strings.Contains(err.Error(), `"z"`) || !strings.Contains(err.Error(), "one of a, b, c") {
		t.Errorf("CheckParams: %v", err)
	}
}

// A lease ID allows releasing the lock, so no way of printing shows it.
func TestNoLeaseIDIsPrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, log, observed bytes.Buffer // each is written by one goroutine
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
		words := slog.New(slog.NewTextHandler(&out, nil))
		for _, v := range []any{h.Lease(), req, err, driver.NewRevision(id.Reveal()), []holdfast.Lease{h.Lease()},
			struct{ L holdfast.Lease }{h.Lease()}, h, []any{h}, struct{ H any }{h}, h.Context(), context.WithValue(h.Context(), h, h)} {
			fmt.Fprintf(&out, "%v %+v %#v %s %q\n", v, v, v, v, v)
			logger.Info("value", "v", v)
			words.Info("value", "v", v)
			b, _ := json.Marshal(v)
			out.Write(b)
		}
		time.Sleep(time.Hour)
		_ = h.Release(t.Context())
		synctest.Wait()
		if text := out.String() + log.String() + observed.String(); strings.Contains(text, id.Reveal()) || strings.Contains(text, "data-secret") {
			t.Errorf("the lease ID or the data is printed:\n%s", text)
		}
		if !strings.Contains(out.String(), `hold of the lease of "job"`) {
			t.Errorf("a hold is not named:\n%s", out.String())
		}
		if out.Len() < 500 || log.Len() < 500 || observed.Len() < 500 {
			t.Error("nothing was printed")
		}
	})
}

// narrow has the limits of an Azure blob lease.
type narrow struct{ holdfast.Locker }

func (narrow) Info() driver.Info {
	return driver.Info{Limits: driver.Limits{MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second, MaxName: 10, MaxOwner: 10,
		MaxData: 4,
		TTLNote: "elsewhere it is less"}}
}

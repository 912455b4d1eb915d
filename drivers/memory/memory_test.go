package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func ExampleNew() {
	ctx := context.Background()
	locker := memory.New()
	defer func() { _ = locker.Close(ctx) }()

	lease, err := locker.TryAcquire(ctx, driver.Request{Name: "billing", ID: driver.NewLeaseID("first"), Owner: "a", TTL: time.Minute})
	fmt.Println(lease.Owner, err)
	_, err = locker.TryAcquire(ctx, driver.Request{Name: "billing", ID: driver.NewLeaseID("second"), Owner: "b", TTL: time.Minute})
	fmt.Println(errors.Is(err, driver.ErrHeld))
	// Output:
	// a <nil>
	// true
}

func ExampleStore() {
	ctx := context.Background()
	store := memory.NewStore()
	one, two := store.Locker(), store.Locker() // as in two processes

	_, err := one.TryAcquire(ctx, driver.Request{Name: "billing", ID: driver.NewLeaseID("first"), Owner: "a", TTL: time.Minute})
	fmt.Println(err)
	record, err := two.Inspect(ctx, "billing")
	fmt.Println(record.State, record.Owner, err)
	// Output:
	// <nil>
	// held a <nil>
}

// The default clock follows the fake clock of a synctest bubble.
func TestDefaultClockInSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.New()
		ctx := t.Context()
		if _, err := l.TryAcquire(ctx, driver.Request{Name: "n", ID: driver.NewLeaseID("a"), TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - 1)
		second := driver.Request{Name: "n", ID: driver.NewLeaseID("b"), TTL: time.Hour}
		if _, err := l.TryAcquire(ctx, second); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("1 ns before expiry: %v, want ErrHeld", err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := l.TryAcquire(ctx, second); err != nil {
			t.Fatalf("at expiry: %v", err)
		}
	})
}

func TestURL(t *testing.T) {
	for u, history := range map[string]int{"mem:": driver.DefaultHistory, "mem://": driver.DefaultHistory, "mem:?history=0": 0,
		"mem:?history=32": 32} {
		l, err := driver.Open(t.Context(), u)
		if err != nil {
			t.Errorf("%s: %v", u, err)
			continue
		}
		if got := l.Info().History; got != history {
			t.Errorf("%s keeps %d past holders, want %d", u, got, history)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, u := range []string{"mem:name", "mem://user:secret@host", "mem:/path", "mem:?x=1", "mem:#f", "mem:%zz", "mem:?a=%zz",
		"mem:?history=33", "mem:?history=x"} {
		if _, err := driver.Open(t.Context(), u); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", u, err)
		}
	}
}

// FuzzURL checks that a URL makes a store or is an *InvalidError that shows nothing of it.
func FuzzURL(f *testing.F) {
	f.Add("")
	f.Add("//")
	f.Add("x?a=b#c")
	f.Add("//user:pass@host/x")
	f.Add("%zz")
	f.Fuzz(func(t *testing.T, rest string) {
		l, err := driver.Open(t.Context(), "mem:"+rest)
		if err == nil {
			_ = l.Close(t.Context())
			return
		}
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, "URL") {
			t.Errorf("%q: error %v", rest, err)
		}
		const secret = "s3cr3t-0f-7h3-u53r"
		if _, err := driver.Open(t.Context(), "mem://user:"+secret+rest); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: error %v", rest, err)
		}
	})
}

// Check's caller may use the store while findings are reported.
func TestCheckReportsWithTheStoreUnlocked(t *testing.T) {
	l := memory.New()
	checked := make(chan error, 1)
	go func() {
		checked <- l.Check(context.Background(), func(driver.Finding) {
			if _, err := l.Inspect(context.Background(), "n"); err != nil {
				t.Error(err)
			}
		})
	}()
	select {
	case err := <-checked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("report waits for the store's mutex, which Check holds")
	}
}

// A nil option is an error of every call.
func TestNilOptions(t *testing.T) {
	for what, option := range map[string]memory.Option{"option": nil, "clock": memory.WithClock(nil)} {
		for constructor, l := range map[string]*memory.Locker{
			"New": memory.New(memory.WithHistory(1), option), "NewStore": memory.NewStore(option, memory.WithHistory(1)).Locker(),
		} {
			_, acquireErr := l.TryAcquire(t.Context(), driver.Request{Name: "n", ID: driver.NewLeaseID("a"), TTL: time.Minute})
			_, inspectErr := l.Inspect(t.Context(), "n")
			_, batchErrs := l.InspectBatch(t.Context(), "", []string{"n"})
			for call, err := range map[string]error{"TryAcquire": acquireErr, "Inspect": inspectErr, "InspectBatch": batchErrs[0],
				"Check": l.Check(t.Context(), func(driver.Finding) { t.Errorf("%s with a nil %s: a finding", constructor, what) })} {
				if !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("%s with a nil %s: %s: %v", constructor, what, call, err)
				}
			}
		}
	}
}

// A lock whose record was removed while it was held is granted with a greater token, in the same
// millisecond too.
func TestTokenRisesAfterRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		l := store.Locker()
		var last uint64
		for _, id := range []string{"a", "b", "c"} {
			lease, err := l.TryAcquire(t.Context(), driver.Request{Name: "n", ID: driver.NewLeaseID(id), TTL: time.Hour})
			if err != nil || lease.Token <= last {
				t.Fatalf("%s: token %d after %d, %v", id, lease.Token, last, err)
			}
			last = lease.Token
			store.Remove("n")
		}
	})
}

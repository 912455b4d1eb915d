package cas_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// early is a store whose client library fails by itself some time before the deadline of a context.
type early struct {
	*memStore
	by  time.Duration
	err error
}

func (s early) fail(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := sleep(ctx, time.Until(deadline)-s.by); err != nil {
			return err
		}
	}
	return s.err
}

func (s early) Get(ctx context.Context, _ string) (cas.Value, error) { return cas.Value{}, s.fail(ctx) }

func (s early) List(ctx context.Context, _, _ string) ([]cas.Item, string, error) {
	return nil, "", s.fail(ctx)
}

// A deadline that the client library notices before the context does is the context's end. Other errors are not, however late
// they come.
func TestDeadlineOfTheClientLibrary(t *testing.T) {
	timeout, denied := errors.New("read tcp: i/o timeout"), driver.Denied(errors.New("no right"))
	for what, c := range map[string]struct {
		by    time.Duration
		err   error
		ends  bool // with the context
		after time.Duration
	}{
		"at the deadline":     {by: 0, err: timeout, ends: true, after: time.Second},
		"some ms before":      {by: 5 * time.Millisecond, err: timeout, ends: true, after: time.Second},
		"long before":         {by: 500 * time.Millisecond, err: timeout, after: 500 * time.Millisecond},
		"denied, some before": {by: 5 * time.Millisecond, err: denied, after: 995 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, early{newStore(), c.by, c.err}, cas.Config{})
				for method, call := range map[string]func(context.Context) error{
					"TryAcquire": func(ctx context.Context) error {
						_, err := l.TryAcquire(ctx, request("n", "a", time.Minute))
						return err
					},
					"Inspect": func(ctx context.Context) error { _, err := l.Inspect(ctx, "n"); return err },
					"Release": func(ctx context.Context) error {
						return l.Release(ctx, driver.Lease{Name: "n", ID: driver.NewLeaseID("a")})
					},
					"List": func(ctx context.Context) (err error) {
						for _, err = range l.List(ctx, "") {
						}
						return err
					},
				} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					began := time.Now()
					err := call(ctx)
					cancel()
					if err == nil || errors.Is(err, context.DeadlineExceeded) != c.ends ||
						errors.Is(err, driver.ErrDenied) != errors.Is(c.err, driver.ErrDenied) {
						t.Errorf("%s: %v", method, err)
					}
					if took := time.Since(began); took != c.after {
						t.Errorf("%s took %v, want %v", method, took, c.after)
					}
				}
			})
		})
	}
}

// A call that ends while it repeats a write says why the writes were not done.
func TestEndOfRepeatedWritesSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.put = failing(errors.New("memory is full"))
		l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.TryAcquire(ctx, request("n", "a", time.Minute))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "memory is full") {
			t.Error(err)
		}
	})
}

package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// shortened frees a name if its noted end has passed.
func shortened(w *fixture, name string) {
	if end, ok := w.noted("end of " + name).(time.Time); ok && !w.now().Before(end) {
		w.note("end of "+name, nil)
		w.free(name)
	}
}

// shortens makes a fault: the lease ends one TTL after the call, even if it lasted longer before.
func shortens(onRenew, onRepeat bool) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.renew = func(ctx context.Context, l driver.Lease) error {
			_, err := f.Locker.Renew(ctx, l)
			if err == nil && onRenew {
				w.note("end of "+l.Name, w.now().Add(l.TTL))
			}
			return err
		}
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			shortened(w, req.Name)
			lease, err := f.Locker.TryAcquire(ctx, req)
			if err == nil && w.note("used "+req.ID.Reveal(), true) != nil && onRepeat {
				w.note("end of "+req.Name, w.now().Add(req.TTL))
			}
			return lease, err
		}
	}
}

// renews makes a fault of Renew.
func renews(do func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.renew = func(ctx context.Context, l driver.Lease) error { return do(w, f, ctx, l) }
	}
}

// releases makes a fault of Release.
func releases(do func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.release = func(ctx context.Context, l driver.Lease) error { return do(w, f, ctx, l) }
	}
}

// forgets adds to a fault that removes records by forget: their next tokens come from the clock alone, as in a
// store that knows nothing of a name without a record.
func forgets(spoil func(*fixture, *faulty)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		grants(func(w *fixture, req driver.Request, lease *driver.Lease) {
			if w.noted("forgotten "+req.Name) != nil {
				lease.Token = uint64(w.now().UnixMilli())
			}
		})(w, f)
		spoil(w, f)
	}
}

// forget removes a record.
func (w *fixture) forget(name string) {
	w.store.Remove(name)
	w.note("forgotten "+name, true)
}

func leaseFaults() []fault {
	const early = "before the lease could end"
	return []fault{
		{
			name: "expiry is ignored", says: "is still held", caught: []string{"expiry/takeover", "expiry/inspect", "expiry/one winner",
				"renew/extends"},
			make: asks(func(_ *fixture, req *driver.Request) { req.TTL *= 1000 }),
		},
		{
			name: "leases end early", says: early, caught: []string{"expiry/takeover", "expiry/inspect", "renew/longer", "breaker/runs out"},
			make: func(w *fixture, f *faulty) {
				asks(func(_ *fixture, req *driver.Request) { req.TTL = req.TTL / 10 * 9 })(w, f)
				f.renew = func(ctx context.Context, l driver.Lease) error {
					l.TTL = l.TTL / 10 * 9
					return errOf(f.Locker.Renew(ctx, l))
				}
			},
		},
		{
			name: "leases end 10 ms early", says: early, caught: []string{"expiry/takeover"},
			make: asks(func(_ *fixture, req *driver.Request) { req.TTL -= 10 * time.Millisecond }),
		},
		{
			name: "the second lease of a name is short", says: early, caught: []string{"expiry/each wait is whole"},
			make: asks(func(w *fixture, req *driver.Request) {
				if w.count("grants of "+req.Name) > 1 {
					req.TTL /= 2
				}
			}),
		},
		{
			name: "renewals do nothing", says: early, caught: []string{"renew/extends", "renew/longer", "renew/expired but untaken"},
			make: renews(func(_ *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				l.TTL = time.Millisecond
				return errOf(f.Locker.Renew(ctx, l))
			}),
		},
		{
			name: "renewals shorten", says: early, caught: []string{"renew/never shortens"},
			make: shortens(true, false),
		},
		{
			name: "repeats shorten", says: early, caught: []string{"acquire/repeat never shortens"},
			make: shortens(false, true),
		},
		{
			name: "the recorded TTL shrinks with a renewal", says: "would replace a live lease", caught: []string{"renew/never shortens"},
			make: func(w *fixture, f *faulty) {
				renews(func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
					w.note("TTL of "+l.Name, l.TTL)
					return errOf(f.Locker.Renew(ctx, l))
				})(w, f)
				inspects(func(w *fixture, r *driver.Record) {
					if ttl, ok := w.noted("TTL of " + r.Name).(time.Duration); ok {
						r.TTL = ttl
					}
				})(w, f)
			},
		},
		{
			name: "an expired lease is not renewed", caught: []string{"renew/expired but untaken"},
			make: renews(func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				if w.record(l.Name).State == driver.StateFree {
					return opErr(l.Name, driver.ErrLost)
				}
				return errOf(f.Locker.Renew(ctx, l))
			}),
		},
		{
			name: "only the Locker that acquired may renew", caught: []string{"renew/any Locker"},
			make: func(_ *fixture, f *faulty) {
				mine := make(chan string, 100)
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					mine <- req.ID.Reveal()
					return f.Locker.TryAcquire(ctx, req)
				}
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if len(mine) == 0 {
						return opErr(l.Name, driver.ErrLost)
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
			},
		},
		{
			name: "a lost renewal says nil", says: "want ErrLost",
			caught: []string{"renew/released", "renew/stale", "renew/unknown name", "renew/removed", "expiry/takeover", "race/exclusion",
				"acquire/owner proves nothing", "acquire/replace"},
			make: renews(func(_ *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				if _, err := f.Locker.Renew(ctx, l); !errors.Is(err, driver.ErrLost) {
					return err
				}
				return nil
			}),
		},
		{
			name: "a lost renewal is some error", says: "want ErrLost", caught: []string{"renew/stale", "renew/unknown name"},
			make: renews(func(_ *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				if _, err := f.Locker.Renew(ctx, l); err != nil {
					return opErr(l.Name, errors.New("matched 0 documents"))
				}
				return nil
			}),
		},
		{
			name: "renewals take the lock again", caught: []string{"renew/stale", "expiry/takeover"},
			make: renews(func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				if errOf(f.Locker.Renew(ctx, l)) == nil {
					return nil
				}
				w.free(l.Name)
				_, err := w.plain.TryAcquire(ctx, driver.Request{Name: l.Name, ID: l.ID, Owner: l.Owner, TTL: l.TTL})
				return err
			}),
		},
		{
			name: "renewals clear the data", caught: []string{"renew/keeps the data"},
			make: renews(func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				_, err := f.Locker.Renew(ctx, l)
				_ = w.write(ctx, l, nil)
				return err
			}),
		},
		{
			name: "a release frees another's lock", caught: []string{"release/stale", "release/by name and ID", "acquire/owner proves nothing",
				"race/exclusion", "expiry/takeover", "breaker/BreakNow"},
			make: releases(func(_ *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				return f.Locker.Capabilities().Breaker.BreakNow(ctx, l.Name, driver.BreakAnybody())
			}),
		},
		{
			name: "the second release is an error", caught: []string{"release/idempotent"},
			make: releases(func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				if w.note("released "+l.ID.Reveal(), true) != nil {
					return opErr(l.Name, driver.ErrLost)
				}
				return f.Locker.Release(ctx, l)
			}),
		},
		{
			name: "a release compares the token", caught: []string{"release/by name and ID", "context/ends during"},
			make: releases(func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				if w.record(l.Name).Token != l.Token {
					return nil
				}
				return f.Locker.Release(ctx, l)
			}),
		},
		{
			name: "a release deletes the record", caught: []string{"release/keeps token and data", "token/rises", "data/kept or replaced",
				"datastore/read"},
			make: forgets(releases(func(w *fixture, f *faulty, ctx context.Context, l driver.Lease) error {
				err := f.Locker.Release(ctx, l)
				w.forget(l.Name)
				return err
			})),
		},
		{
			name: "a release waits for the lease's end", caught: []string{"release/frees", "close/leases stay"},
			make: func(w *fixture, f *faulty) {
				f.release = func(ctx context.Context, l driver.Lease) error {
					return f.Locker.Capabilities().Breaker.Break(ctx, l.Name, driver.BreakAnybody())
				}
				f.close = func(ctx context.Context) error { return opErr("", errors.New("leases are held")) }
			},
		},
	}
}

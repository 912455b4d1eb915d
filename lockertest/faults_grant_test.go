package lockertest

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// grants makes a fault of TryAcquire: change may alter each grant.
func grants(change func(w *fixture, req driver.Request, lease *driver.Lease)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			lease, err := f.Locker.TryAcquire(ctx, req)
			if err == nil {
				change(w, req, &lease)
			}
			return lease, err
		}
	}
}

// asks makes a fault of TryAcquire: change may alter each request.
func asks(change func(w *fixture, req *driver.Request)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			asked := req
			change(w, &asked)
			lease, err := f.Locker.TryAcquire(ctx, asked)
			if err == nil {
				lease.Name, lease.ID, lease.TTL = req.Name, req.ID, req.TTL
			}
			return lease, err
		}
	}
}

// repeats makes a fault of repeats: do replaces TryAcquire for them.
func repeats(do func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error)) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			if w.noted("holder of "+req.Name) == req.ID && w.record(req.Name).State == driver.StateHeld {
				return do(w, f, ctx, req)
			}
			lease, err := f.Locker.TryAcquire(ctx, req)
			if err == nil {
				w.note("holder of "+req.Name, req.ID)
			}
			return lease, err
		}
	}
}

// checkThenAct grants a lock that was free a moment ago.
func checkThenAct(when func(driver.Record) bool) func(*fixture, *faulty) {
	return func(w *fixture, f *faulty) {
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			if when(w.record(req.Name)) {
				time.Sleep(20 * time.Millisecond)
				w.free(req.Name)
			}
			return f.Locker.TryAcquire(ctx, req)
		}
	}
}

func grantFaults() []fault {
	return []fault{
		{
			name: "a constant token", says: "token 7 was granted to another ID before",
			caught: []string{"token/rises", "token/another Locker", "release/frees", "race/exclusion", "expiry/takeover",
				"release/keeps token and data"},
			make: grants(func(_ *fixture, _ driver.Request, l *driver.Lease) { l.Token = 7 }),
		},
		{
			name: "token 0", says: "token 0", caught: []string{"acquire/free"},
			make: grants(func(_ *fixture, _ driver.Request, l *driver.Lease) { l.Token = 0 }),
		},
		{
			name: "tokens count from 1 after a removal", caught: []string{"token/removed"},
			make: grants(func(w *fixture, req driver.Request, l *driver.Lease) {
				if w.note("removed "+req.Name, nil) != nil {
					l.Token = 1
				}
			}),
		},
		{
			name: "each Locker counts tokens by itself", caught: []string{"token/another Locker", "token/rises"},
			make: func(w *fixture, f *faulty) {
				n := uint64(0)
				grants(func(_ *fixture, _ driver.Request, l *driver.Lease) { n++; l.Token = n })(w, f)
			},
		},
		{
			name: "another's lease is returned", says: "returned another's name, ID, owner or TTL", caught: []string{"acquire/free"},
			make: grants(func(_ *fixture, _ driver.Request, l *driver.Lease) { l.ID = driver.NewLeaseID("other") }),
		},
		{
			name: "released locks stay held", says: "should be granted", caught: []string{"acquire/free", "release/frees", "release/by name and ID"},
			make: func(_ *fixture, f *faulty) { f.release = func(context.Context, driver.Lease) error { return nil } },
		},
		{
			name: "whoever asked may release", caught: []string{"release/late and doubled"},
			make: func(w *fixture, f *faulty) {
				asks(func(w *fixture, req *driver.Request) { w.note("asked "+req.ID.Reveal(), true) })(w, f)
				f.release = func(ctx context.Context, l driver.Lease) error {
					if w.noted("asked "+l.ID.Reveal()) != nil {
						w.free(l.Name)
					}
					return f.Locker.Release(ctx, l)
				}
			},
		},
		{
			name: "a refused request is released, but late", caught: []string{"acquire/after refusals"},
			make: func(w *fixture, f *faulty) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					lease, err := f.Locker.TryAcquire(ctx, req)
					if id := "refused " + req.ID.Reveal(); err != nil {
						w.note(id, true)
					} else if w.note(id, nil) != nil {
						w.free(req.Name)
					}
					return lease, err
				}
			},
		},
		{
			name: "every request is granted", caught: []string{"acquire/held", "acquire/one winner", "race/exclusion", "data/refused request"},
			make: asks(func(w *fixture, req *driver.Request) { w.free(req.Name) }),
		},
		{
			name: "a new name is checked, then taken", says: "of 64 requests at once", caught: []string{"acquire/one winner"},
			make: checkThenAct(func(r driver.Record) bool { return r.Token == 0 }),
		},
		{
			name: "an expired lock is checked, then taken", says: "of 16 requests at once", caught: []string{"expiry/one winner"},
			make: checkThenAct(func(r driver.Record) bool { return r.Token != 0 && r.State == driver.StateFree }),
		},
		{
			name: "the owner proves ownership", caught: []string{"acquire/owner proves nothing"},
			make: asks(func(w *fixture, req *driver.Request) {
				if w.record(req.Name).Owner == req.Owner {
					w.free(req.Name)
				}
			}),
		},
		{
			name: "a repeat gets a new token", says: "the repeat got token", caught: []string{"acquire/repeat", "acquire/repeats at once"},
			make: repeats(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				w.free(req.Name)
				return f.Locker.TryAcquire(ctx, req)
			}),
		},
		{
			name: "a repeat is refused", caught: []string{"acquire/repeat", "acquire/repeats at once", "acquire/repeat extends"},
			make: repeats(func(w *fixture, _ *faulty, _ context.Context, req driver.Request) (driver.Lease, error) {
				return driver.Lease{}, heldErr(w.record(req.Name))
			}),
		},
		{
			name: "a repeat replaces the data", says: `the data are "second"`, caught: []string{"acquire/repeat"},
			make: repeats(func(w *fixture, f *faulty, ctx context.Context, req driver.Request) (driver.Lease, error) {
				lease, err := f.Locker.TryAcquire(ctx, req)
				if err == nil {
					err = w.write(ctx, lease, req.Data)
				}
				return lease, err
			}),
		},
		{
			name: "a repeat does not extend", says: "before the lease could end", caught: []string{"acquire/repeat extends"},
			make: repeats(func(w *fixture, _ *faulty, _ context.Context, req driver.Request) (driver.Lease, error) {
				return driver.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, Token: w.record(req.Name).Token, TTL: req.TTL}, nil
			}),
		},
		{
			name: "the same ID is refused forever", caught: []string{"expiry/same ID"},
			make: asks(func(w *fixture, req *driver.Request) {
				if w.note("used "+req.ID.Reveal(), true) != nil && w.record(req.Name).State == driver.StateFree {
					req.ID, req.TTL = newID(), time.Hour // the grant is to an ID that nobody knows
				}
			}),
		},
		{
			name: "the same ID keeps its token forever", caught: []string{"expiry/same ID"},
			make: grants(func(w *fixture, req driver.Request, l *driver.Lease) {
				if before, used := w.note("token of "+req.ID.Reveal(), l.Token).(uint64); used {
					l.Token = before
					w.note("token of "+req.ID.Reveal(), before)
				}
			}),
		},
		{
			name: "Replace is ignored", says: "should be granted", caught: []string{"acquire/replace"},
			make: asks(func(_ *fixture, req *driver.Request) { req.Replace = driver.Revision{} }),
		},
		{
			name: "Replace is not compared", caught: []string{"acquire/replace"},
			make: asks(func(w *fixture, req *driver.Request) {
				if !req.Replace.IsZero() {
					w.free(req.Name)
				}
			}),
		},
		{
			name: "a lease comes with an error", says: "together with an error", caught: []string{"acquire/held"},
			make: func(_ *fixture, f *faulty) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					lease, err := f.Locker.TryAcquire(ctx, req)
					lease.Name = req.Name
					return lease, err
				}
			},
		},
		{
			name: "a refused request leaves its data", caught: []string{"data/refused request"},
			make: func(w *fixture, f *faulty) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					lease, err := f.Locker.TryAcquire(ctx, req)
					if err != nil {
						holder, _ := w.noted("lease of " + req.Name).(driver.Lease)
						_ = w.write(ctx, holder, req.Data)
					} else {
						w.note("lease of "+req.Name, lease)
					}
					return lease, err
				}
			},
		},
	}
}

package lockertest

import (
	"bytes"
	"context"
	"path"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// renamed makes a fault: it changes names on their way in and restores them on their way out, like
// an escape that is not one to one.
func renamed(to func(string) string) func(*fixture, *faulty) {
	return func(_ *fixture, f *faulty) {
		back := func(name string, err error) error {
			if err == nil {
				return nil
			}
			return opErr(name, err)
		}
		f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
			name := req.Name
			req.Name = to(name)
			lease, err := f.Locker.TryAcquire(ctx, req)
			if err == nil {
				lease.Name = name
			}
			return lease, back(name, err)
		}
		f.renew = func(ctx context.Context, l driver.Lease) error {
			name := l.Name
			l.Name = to(name)
			return back(name, errOf(f.Locker.Renew(ctx, l)))
		}
		f.release = func(ctx context.Context, l driver.Lease) error {
			name := l.Name
			l.Name = to(name)
			return back(name, f.Locker.Release(ctx, l))
		}
		f.inspect = func(ctx context.Context, name string) (driver.Record, error) {
			r, err := f.Locker.Inspect(ctx, to(name))
			r.Name = name
			return r, back(name, err)
		}
		f.capabilities = func(a driver.Capabilities) driver.Capabilities {
			return driver.Capabilities{Waker: renamedWaker{a.Waker, to}}
		}
	}
}

type renamedWaker struct {
	driver.Waker
	to func(string) string
}

func (w renamedWaker) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	return w.Waker.Wake(w.to(name), waiter, wake)
}

// nonEmpty keeps a changed name valid.
func nonEmpty(to func(string) string) func(string) string {
	return func(name string) string {
		if s := to(name); s != "" {
			return s
		}
		return "empty"
	}
}

func inputFaults() []fault {
	shares := func(name, says string, to func(string) string) fault {
		return fault{name: name, says: says, caught: []string{"name/distinct"}, make: renamed(nonEmpty(to))}
	}
	return []fault{
		shares("names ignore case", "is held", strings.ToLower),
		shares("names are paths", "", path.Clean),
		shares("names lose spaces at their ends", "", strings.TrimSpace),
		shares("names lose dots at their end", "", func(s string) string { return strings.TrimRight(s, ".") }),
		shares("names end at a zero byte", "", func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s }),
		shares("names are cut", "", func(s string) string { return s[:min(len(s), 250)] }),
		shares("names are composed", "", func(s string) string { return strings.ReplaceAll(s, "e\u0301", "\u00e9") }),
		shares("backslashes are slashes", "", func(s string) string { return strings.ReplaceAll(s, `\`, "/") }),
		shares("percent signs are decoded", "", func(s string) string { return strings.ReplaceAll(s, "%2F", "/") }),
		shares("letters that no file name may have are replaced", "", func(s string) string {
			return strings.Map(func(r rune) rune {
				if strings.ContainsRune(`<>:"|?*`, r) {
					return '_'
				}
				return r
			}, s)
		}),
		{
			name: "invalid names are repaired", says: "want an *InvalidError about Name", caught: []string{"name/invalid"},
			make: renamed(nonEmpty(func(s string) string { s = strings.ToValidUTF8(s, "?"); return s[:min(len(s), 1024)] })),
		},
		{
			name: "TTLs are rounded", says: "want an *InvalidError about TTL", caught: []string{"argument/TTL"},
			make: func(_ *fixture, f *faulty) {
				f.tryAcquire = func(ctx context.Context, req driver.Request) (driver.Lease, error) {
					req.TTL = max(req.TTL, time.Millisecond)
					return f.Locker.TryAcquire(ctx, req)
				}
				f.renew = func(ctx context.Context, l driver.Lease) error {
					l.TTL = max(l.TTL, time.Millisecond)
					return errOf(f.Locker.Renew(ctx, l))
				}
			},
		},
		{
			name: "any ID is accepted", caught: []string{"argument/ID"},
			make: asks(func(_ *fixture, req *driver.Request) {
				if req.ID.IsZero() || len(req.ID.Reveal()) > 64 {
					req.ID = newID()
				}
			}),
		},
		{
			name: "the mode is ignored", says: "TryAcquire in the mode mode 2", caught: []string{"argument/mode"},
			make: asks(func(_ *fixture, req *driver.Request) { req.Mode = driver.Exclusive }),
		},
		{
			name: "owners are cut", caught: []string{"argument/owner"},
			make: asks(func(_ *fixture, req *driver.Request) { req.Owner = req.Owner[:min(len(req.Owner), 1000)] }),
		},
		{
			name: "data are cut", caught: []string{"argument/data", "data/any bytes", "datastore/write"},
			make: func(w *fixture, f *faulty) {
				asks(func(_ *fixture, req *driver.Request) { req.Data = req.Data[:min(len(req.Data), 1<<19)] })(w, f)
				f.capabilities = func(a driver.Capabilities) driver.Capabilities {
					a.DataStore = dataFault{a.DataStore, func(ctx context.Context, l driver.Lease, data []byte, at driver.DataRevision) error {
						return w.plain.WriteData(ctx, l, data[:min(len(data), 1<<19)], at)
					}, nil}
					return a
				}
			},
		},
		{
			name: "data are text", caught: []string{"data/any bytes"},
			make: asks(func(_ *fixture, req *driver.Request) {
				if req.Data != nil {
					req.Data = bytes.ToValidUTF8(req.Data, []byte("?"))
				}
			}),
		},
		{
			name: "the caller's data are not copied", caught: []string{"data/any bytes"},
			make: func(w *fixture, f *faulty) {
				grants(func(w *fixture, req driver.Request, _ *driver.Lease) {
					if req.Data != nil {
						w.note("data of "+req.Name, req.Data)
					}
				})(w, f)
				f.inspect = func(ctx context.Context, name string) (driver.Record, error) {
					r, err := f.Locker.Inspect(ctx, name)
					r.Data, _ = w.noted("data of " + name).([]byte)
					return r, err
				}
			},
		},
		{
			name: "nil clears the data", caught: []string{"data/kept or replaced", "expiry/takeover"},
			make: asks(func(_ *fixture, req *driver.Request) {
				if req.Data == nil {
					req.Data = []byte{}
				}
			}),
		},
		{
			name: "empty data keep the stored data", caught: []string{"data/kept or replaced"},
			make: asks(func(_ *fixture, req *driver.Request) {
				if len(req.Data) == 0 {
					req.Data = nil
				}
			}),
		},
		{
			name: "owners are expressions", says: "another's name, ID, owner or TTL", caught: []string{"text/taken literally"},
			make: asks(func(_ *fixture, req *driver.Request) { req.Owner = strings.ReplaceAll(req.Owner, "$$NOW", "12:00") }),
		},
		{
			name: "IDs are expressions", caught: []string{"text/taken literally"},
			make: func(w *fixture, f *faulty) {
				asks(func(w *fixture, req *driver.Request) {
					if strings.HasPrefix(req.ID.Reveal(), "$") {
						w.free(req.Name)
					}
				})(w, f)
				f.renew = func(ctx context.Context, l driver.Lease) error {
					if strings.HasPrefix(l.ID.Reveal(), "$") {
						return nil
					}
					return errOf(f.Locker.Renew(ctx, l))
				}
				f.release = func(ctx context.Context, l driver.Lease) error {
					if strings.HasPrefix(l.ID.Reveal(), "$") {
						return opErr(l.Name, context.DeadlineExceeded)
					}
					return f.Locker.Release(ctx, l)
				}
			},
		},
	}
}

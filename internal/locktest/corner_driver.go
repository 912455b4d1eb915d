package locktest

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Changed is a Locker some of whose answers a test makes up.
type Changed struct {
	holdfast.Locker
	OnAcquire func(ctx context.Context, req driver.Request) (holdfast.Lease, error)
	OnWatch   func(name string, wake func()) (stop func())
	Allowed   *driver.Limits
}

func (c Changed) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	if c.OnAcquire == nil {
		return c.Locker.TryAcquire(ctx, req)
	}
	return c.OnAcquire(ctx, req)
}

func (c Changed) Capabilities() driver.Capabilities {
	if c.OnWatch == nil {
		return driver.Capabilities{}
	}
	return driver.Capabilities{Watcher: c}
}

func (c Changed) Watch(name string, wake func()) (stop func()) { return c.OnWatch(name, wake) }

func (c Changed) Limits() driver.Limits {
	if c.Allowed != nil {
		return *c.Allowed
	}
	return c.Locker.Limits()
}

func Refuse(ops ...string) func(string, int, holdfast.Lease) Fault {
	return func(op string, _ int, _ holdfast.Lease) Fault {
		for _, o := range ops {
			if o == op {
				return Fault{Refuse: ErrInjected}
			}
		}
		return Fault{}
	}
}

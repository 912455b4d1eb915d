package lockertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func handOverInputFaults() []fault {
	return []fault{
		{
			name: "the name of the former lease is ignored", says: "want an *InvalidError about from.Name", caught: []string{"handoff/arguments"},
			make: handsOverAsked(func(_ *fixture, from *driver.Lease, req *driver.Request) { from.Name = req.Name }),
		},
		{
			name: "a former lease without an ID is accepted", says: "want an *InvalidError about from.ID", caught: []string{"handoff/arguments"},
			make: handsOverAsked(func(_ *fixture, from *driver.Lease, _ *driver.Request) {
				if from.ID.IsZero() {
					from.ID = newID()
				}
			}),
		},
		{
			name: "an invalid handoff has an effect", says: "after requests that are not valid", caught: []string{"handoff/arguments"},
			make: handsOver(func(
				w *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				if errors.Is(err, driver.ErrInvalid) {
					_ = w.plain.Release(ctx, from)
				}
				return lease, err
			}),
		},
		{
			name: "handoffs ignore the mode", says: "HandOver in the mode mode 2", caught: []string{"argument/mode"},
			make: handsOverAsked(func(_ *fixture, _ *driver.Lease, req *driver.Request) { req.Mode = driver.Exclusive }),
		},
		{
			name: "handoffs compare the token", says: "which should be granted", caught: []string{"handoff/by name and ID"},
			make: handsOverAsked(func(w *fixture, from *driver.Lease, req *driver.Request) {
				if from.Token != w.record(req.Name).Token && !from.ID.IsZero() {
					from.ID = newID()
				}
			}),
		},
		{
			name: "the token proves ownership in a handoff", says: "which another holds", caught: []string{"handoff/by name and ID"},
			make: handsOverAsked(func(w *fixture, from *driver.Lease, req *driver.Request) {
				if from.Token == w.record(req.Name).Token {
					w.free(req.Name)
				}
			}),
		},
		{
			name: "handoffs ignore case", caught: []string{"handoff/odd names"},
			make: handsOverAsked(func(_ *fixture, from *driver.Lease, req *driver.Request) {
				from.Name, req.Name = strings.ToLower(from.Name), strings.ToLower(req.Name)
			}),
		},
		{
			name: "the ID of the former lease is evaluated as an expression", says: "want ErrHeld", caught: []string{"handoff/IDs taken literally"},
			make: handsOverAsked(func(w *fixture, from *driver.Lease, req *driver.Request) {
				if strings.HasPrefix(from.ID.Reveal(), "$") {
					w.free(req.Name)
				}
			}),
		},
		{
			name: "the ID of the former lease is in errors", says: "shows the lease ID: ", caught: []string{"handoff/held"},
			make: handsOver(func(
				_ *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				lease, err := next(ctx, from, req)
				if err != nil {
					err = opErr(req.Name, fmt.Errorf("from %s: %w", from.ID.Reveal(), err))
				}
				return lease, err
			}),
		},
		{
			name: "handoffs ignore the context", says: "HandOver", caught: []string{"context/ended before"},
			make: handsOver(func(
				_ *fixture, _ *faulty, next handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				return next(context.WithoutCancel(ctx), from, req)
			}),
		},
		{
			name: "a closed Locker hands over", says: "HandOver after Close", caught: []string{"close/ErrClosed"},
			make: handsOver(func(
				w *fixture, _ *faulty, _ handOver, ctx context.Context, from driver.Lease, req driver.Request,
			) (driver.Lease, error) {
				return w.plain.HandOver(ctx, from, req)
			}),
		},
	}
}

package locktest

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Blind tells nothing of a holder but that there is one.
type Blind struct{ holdfast.Locker }

func (b Blind) TryAcquire(ctx context.Context, req driver.Request) (holdfast.Lease, error) {
	l, err := b.Locker.TryAcquire(ctx, req)
	if errors.Is(err, holdfast.ErrHeld) {
		err = &holdfast.HeldError{Record: holdfast.Record{Name: req.Name, State: driver.StateHeld}}
	}
	return l, err
}

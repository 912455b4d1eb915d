package postgres

import (
	"context"

	"github.com/holdfast-go/holdfast/driver/guard"
)

type (
	Guard[Tx any] struct{}
	Fence[Tx any] struct{}
)

func (g *Guard[Tx]) Do(ctx context.Context, hold guard.Hold, fn func(ctx context.Context, tx Tx) error) error {
	return nil
}
func (f *Fence[Tx]) Do(ctx context.Context, hold guard.Hold, fn func(ctx context.Context, tx Tx) error) error {
	return nil
}

package partitions

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

type (
	Partitions struct{}
	Option     any
)

func New(client *holdfast.Client, group string, n int, fn func(ctx context.Context, partition int) error,
	opts ...Option) (*Partitions, error) {
	return nil, nil
}

package guard

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

type Hold interface {
	Lease() holdfast.Lease
	Context() context.Context
	Err() error
}

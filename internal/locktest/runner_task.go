package locktest

import (
	"context"
)

func Nothing(context.Context) error { return nil }

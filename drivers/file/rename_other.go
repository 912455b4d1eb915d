//go:build !unix && !windows

package file

import (
	"context"
	"os"
)

func rename(_ context.Context, from, to string) error { return os.Rename(from, to) }

//go:build !unix && !windows

package file

import (
	"context"
	"os"
)

func rename(_ context.Context, from, to string) error { return os.Rename(from, to) }

func openInUse(_ context.Context, path string, flag int, perm os.FileMode) (*os.File, error) {
	return os.OpenFile(path, flag, perm)
}

package testservers

import (
	"context"
	"fmt"
)

// pymongo is in a folder of its own, for PYTHONPATH: a virtual environment cannot be moved.
var pymongo = cached{"pymongo-4.20.0", "2 MB, by pip", func(ctx context.Context, dir string) error {
	return run(ctx, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", dir,
		"pymongo==4.20.0", "dnspython==2.8.0")
}}

// PyMongo returns a folder with MongoDB's driver for Python, which belongs into PYTHONPATH. It
// fetches the driver first if it is not in the cache.
func PyMongo(ctx context.Context) (string, error) {
	dir, err := pymongo.ensure(ctx)
	if err != nil {
		return "", fmt.Errorf("no pymongo: %w; it needs Python 3.9 or later with pip", err)
	}
	return dir, nil
}

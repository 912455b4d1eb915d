package testservers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// pythonPostgres is pg8000, a client of PostgreSQL, with what it needs: Python alone.
var pythonPostgres = cached{"pg8000-1.31.6", "600 kB, by pip", func(ctx context.Context, to string) error {
	fresh := to + "-fresh"
	inFresh := func(name string) string { return filepath.Join(fresh, filepath.FromSlash(name)) }
	for _, w := range []wheel{
		{name: "pg8000==1.31.6", sha256: "1ffe27af94fa5b37ce6885b98d591dc75562ff076859bf50ca7729af59345a80"},
		{name: "scramp==1.5.0", sha256: "8280608f568e81da9e9c9d69cac1331b836622d9b48bf5c5e400e16129c6d1fa"},
		{name: "asn1crypto==1.5.1", sha256: "db4e40728b728508912cbb3d44f19ce188f218e9eba635821bb4b68564f8fd67"},
		{name: "python-dateutil==2.9.0.post0", sha256: "a8b2bc7bffae282281c8140a97d3aa9c14da0b136dfe83f850eea9a5f7470427"},
		{name: "six==1.17.0", sha256: "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274"},
	} {
		if err := w.unpackAs(ctx, filepath.Dir(to), inFresh); err != nil {
			return err
		}
	}
	return os.Rename(fresh, to)
}}

// PythonPostgresIsCached reports whether the client has been fetched.
func PythonPostgresIsCached() bool { return pythonPostgres.isCached() }

// PythonPostgres returns the folder of pg8000 for PYTHONPATH. It fetches pg8000 first if it is not in the cache.
func PythonPostgres(ctx context.Context) (string, error) {
	dir, err := pythonPostgres.ensure(ctx)
	if err != nil {
		return "", fmt.Errorf("no pg8000: %w; it needs Python 3.9 or later, with pip, on PATH", err)
	}
	return dir, nil
}

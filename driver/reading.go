package driver

import "context"

// OpenForReading makes a Locker that is only for reading records: Inspect, List, Watch and the like. It
// makes nothing on the backend, such as a folder or an index, and needs no right but to read. Where the
// backend has no store for the locks yet, they are free; [MissingStore] says so.
func OpenForReading(ctx context.Context, rawURL string) (Locker, error) {
	if d, _ := Describe(rawURL); d.OpenForReading != nil {
		return d.OpenForReading(ctx, rawURL)
	}
	return Open(ctx, rawURL)
}

// MissingStore says which part of the backend the locks would be kept in does not exist, such as "the
// collection app.locks", so that no lock was ever taken there: perhaps the URL is wrong. It is empty if
// nothing is missing, the caller may not see that, or the Locker has no method MissingStore.
func MissingStore(ctx context.Context, l Locker) (string, error) {
	if m, ok := l.(storeFinder); ok {
		return m.MissingStore(ctx)
	}
	return "", nil
}

type storeFinder interface {
	MissingStore(ctx context.Context) (string, error)
}

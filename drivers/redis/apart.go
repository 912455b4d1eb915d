package redis

import (
	"context"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// apart returns the URL of a prefix of its own.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	prefix, err := prefixOf(rawURL)
	if err != nil {
		return rawURL, func(context.Context) error { return err }
	}
	own = driverutil.WithParam(rawURL, paramPrefix, prefix+name+":")
	return own, func(ctx context.Context) error { return deleteAll(ctx, own) }
}

// prefixOf returns what the keys of a URL begin with.
func prefixOf(rawURL string) (string, error) {
	_, _, own, err := parse(rawURL)
	if err != nil {
		return "", connectError(err)
	}
	c, err := newConfig(own)
	return c.prefix, connectError(err)
}

// deleteAll deletes every key with the prefix of a URL.
func deleteAll(ctx context.Context, rawURL string) error {
	l, err := Open(ctx, rawURL, func(c *config) { c.onlyReads = true })
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	for cursor := uint64(0); ; {
		limited, cancel := context.WithTimeout(ctx, l.store.config.timeout)
		cursor, err = do(limited, l.store, func(ctx context.Context) (uint64, error) {
			found, next, err := l.store.client.Scan(ctx, cursor, l.store.key("")+"*", scanCount).Result()
			if err == nil && len(found) > 0 {
				err = l.store.client.Del(ctx, found...).Err()
			}
			return next, err
		})
		cancel()
		if err != nil || cursor == 0 {
			return driverutil.OpError("remove", backend, "", err)
		}
	}
}

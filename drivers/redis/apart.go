package redis

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

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
	_, own, err := parse(rawURL)
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
	limited, cancel := context.WithTimeout(ctx, l.store.config.timeout)
	primaries, _, err := l.store.servers.primaries(limited)
	cancel()
	if err != nil {
		return driverutil.OpError("remove", backend, "", err)
	}
	for _, primary := range primaries {
		if err := l.deleteFrom(ctx, primary); err != nil {
			return driverutil.OpError("remove", backend, "", err)
		}
	}
	return nil
}

// deleteFrom deletes the keys of one primary.
func (l *Locker) deleteFrom(ctx context.Context, primary *goredis.Client) error {
	for cursor := uint64(0); ; {
		limited, cancel := context.WithTimeout(ctx, l.store.config.timeout)
		next, err := do(limited, l.store, false, func(ctx context.Context) (uint64, error) {
			found, next, err := primary.Scan(ctx, cursor, l.store.key("")+"*", scanCount).Result()
			if err != nil || len(found) == 0 {
				return next, err
			}
			pipe := primary.Pipeline() // the keys of one request would have to be in one slot of a cluster
			for _, key := range found {
				pipe.Del(ctx, key)
			}
			_, err = pipe.Exec(ctx)
			return next, err
		})
		cancel()
		if cursor = next; err != nil || cursor == 0 {
			return err
		}
	}
}

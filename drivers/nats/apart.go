package nats

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// apart returns the URL of a bucket of its own.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	_, bucket, _, err := parse(rawURL)
	if err != nil {
		err = connectError(err)
		return rawURL, func(context.Context) error { return err }
	}
	base, query, found := strings.Cut(rawURL, "?")
	own = strings.TrimSuffix(base, bucket) + bucket + "-" + name
	if found {
		own += "?" + query
	}
	return own, func(ctx context.Context) error { return deleteBucket(ctx, own) }
}

// deleteBucket deletes the bucket of a URL.
func deleteBucket(ctx context.Context, rawURL string) error {
	l, err := Open(ctx, rawURL, onlyReads)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	c, err := l.store.link.use(ctx)
	if err == nil {
		var done struct{}
		err = l.store.api(ctx, c, "STREAM.DELETE", nil, &done)
	}
	if err != nil && !hasCode(err, codeNoStream) {
		return driverutil.OpError("remove", backend, "", err)
	}
	return nil
}

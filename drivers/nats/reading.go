package nats

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// MissingStore says which bucket does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (string, error) {
	c, err := l.store.link.use(ctx)
	if err == nil {
		_, err = l.store.streamInfo(ctx, c, nil)
	}
	switch {
	case l.store.link.closed():
		err = driver.ErrClosed
	case hasCode(err, codeNoStream):
		return "the bucket " + l.store.bucket, nil
	}
	return "", driverutil.OpError("look for the bucket", backend, "", err)
}

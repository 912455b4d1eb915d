package nats

import (
	"context"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// MissingStore says which bucket does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (string, error) {
	_, err := l.store.streamInfo(ctx, nil)
	if hasCode(err, codeNoStream) {
		return "the bucket " + l.store.bucket, nil
	}
	return "", driverutil.OpError("look for the bucket", backend, "", err)
}

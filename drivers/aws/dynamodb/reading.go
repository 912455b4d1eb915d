package dynamodb

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
)

// onlyReads makes a Locker that sends nothing when it is opened, and for which the locks of a table that does not exist are free.
func onlyReads(c *settings) { c.rounds = -1 }

// MissingStore says which table does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (string, error) {
	if missing, err := l.Locker.MissingStore(ctx); err != nil {
		return missing, err
	}
	_, err := l.store.Describe(ctx)
	switch {
	case dynamo.HasCode(err, dynamo.CodeNoTable):
		return fmt.Sprintf("the table %s in %s", l.store.Name, l.store.Region), nil
	case dynamo.HasCode(err, dynamo.CodeDenied): // the user may not see that
		return "", nil
	}
	return "", driverutil.OpError("look for the table", backend, "", err)
}

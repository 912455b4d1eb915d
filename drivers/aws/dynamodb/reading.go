package dynamodb

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// onlyReads makes a Locker that sends nothing when it is opened, and for which the locks of a table that does not exist are free.
func onlyReads(c *settings) { c.rounds = -1 }

// MissingStore says which table does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (string, error) {
	if missing, err := l.Locker.MissingStore(ctx); err != nil {
		return missing, err
	}
	_, err := l.store.describe(ctx)
	switch {
	case hasCode(err, codeNoTable):
		return fmt.Sprintf("the table %s in %s", l.store.table, l.store.region), nil
	case hasCode(err, codeDenied): // the user may not see that
		return "", nil
	}
	return "", driverutil.OpError("look for the table", backend, "", err)
}

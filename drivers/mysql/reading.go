package mysql

import (
	"context"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// MissingStore says which table does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (missing string, err error) {
	limited, cancel := context.WithTimeout(ctx, l.store.config.timeout)
	defer cancel()
	found, err := l.store.layout(limited)
	if err == nil && !found.exists() {
		missing = "the table " + found.table
	}
	return missing, driverutil.OpError("look for the table", backend, "", err)
}

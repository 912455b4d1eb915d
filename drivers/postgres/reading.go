package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

func onlyReads(c *config) { c.onlyReads = true }

// MissingStore says which table does not exist, for [driver.MissingStore].
func (l *Locker) MissingStore(ctx context.Context) (missing string, err error) {
	err = l.do(ctx, "look for the table", "", nil, func(ctx context.Context, c *pgx.Conn) error {
		f, err := lookUp(ctx, c, l.config.table)
		if err == nil && f.oid == 0 {
			missing = fmt.Sprintf("the table %s", l.config.table.quoted())
		}
		return err
	})
	return missing, err
}

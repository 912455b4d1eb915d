package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// errElsewhere: the connection that listens does not lead to where notifications are sent. They stay within their database.
var errElsewhere = errors.New("the URL parameter " + paramListen + " leads elsewhere, so no notification arrives")

// place is a database of a cluster.
type place struct {
	identity
	database string
}

func readPlace(ctx context.Context, c *pgx.Conn) (p place, err error) {
	if p.identity, err = identify(ctx, c.PgConn()); err != nil {
		return p, err
	}
	return p, c.QueryRow(ctx, `SELECT current_database()::text`).Scan(&p.database)
}

// undelivered returns why a probe did not arrive: a pooler between, unless the connection that listens leads elsewhere.
func (e *listener) undelivered(ctx context.Context) error {
	if e.l.config.listen == nil {
		return errUndelivered
	}
	var here place
	err := e.l.call(ctx, nil, func(ctx context.Context, c *pgx.Conn) (err error) {
		here, err = readPlace(ctx, c)
		return err
	})
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	there, err2 := readPlace(ctx, e.conn)
	switch {
	case err != nil || err2 != nil:
		return errUndelivered
	case here.database != there.database:
		return fmt.Errorf("%w: to the database %s, and the locks are in %s", errElsewhere, driver.Quote(there.database),
			driver.Quote(here.database))
	case here.system != "" && there.system != "" && here.system != there.system:
		return fmt.Errorf("%w: to a server of another cluster", errElsewhere)
	case there.standby:
		return fmt.Errorf("%w: to a standby", errElsewhere)
	}
	return errUndelivered
}

package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// ReadData implements [driver.DataStore].
func (l *Locker) ReadData(ctx context.Context, name string) (data []byte, at driver.DataRevision, err error) {
	err = l.do(ctx, "read data", name, driver.ValidateName(name, limits), func(ctx context.Context, c *pgx.Conn) error {
		k, err := readLock(ctx, c, l.sql.inspect, toText(name))
		if err != nil || k.Lock == nil {
			return err
		}
		if at = k.DataRevision(); len(k.Data) > 0 {
			data = k.Data
		}
		return nil
	})
	return data, at, err
}

// WriteData implements [driver.DataStore] with one statement, and one more that finds out why it wrote nothing.
func (l *Locker) WriteData(ctx context.Context, lease driver.Lease, data []byte, at driver.DataRevision) error {
	invalid := driver.ValidateWriteData(lease, data, limits)
	return l.do(ctx, "write data", lease.Name, invalid, func(ctx context.Context, c *pgx.Conn) error {
		key := keyOf(lease)
		found, err := stored(c.QueryRow(ctx, l.sql.writeData, key.name, key.holder, data, int64(at.Token), int64(at.Writes)))
		if err != nil || found {
			return err
		}
		switch k, err := readLock(ctx, c, l.sql.inspect, key.name); {
		case err != nil:
			return err
		case k.Lock == nil:
			return driver.ErrLost
		default:
			return cmp.Or(k.Write(key.holder, data, at, k.now), error(&unwritten{k.version}))
		}
	})
}

//go:build unix

package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/test/history"
)

// postgresRegister is a row protected by postgres.NewFence.
type postgresRegister struct {
	pool  *pgxpool.Pool
	fence *postgres.Fence[pgx.Tx]
}

// warned is where a connection notes that the server has warned. A cancelled wait for a synchronous standby makes a
// commit succeed with a warning.
const warned = "workload.warned"

var errWarned = errors.New("the server warned: a standby may not have the commit")

// newPostgresRegister creates the row, so that writes never have to. The result must be closed.
func newPostgresRegister(ctx context.Context, rawURL string) (*postgresRegister, error) {
	config, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		return nil, errors.New("the URL is malformed") // pgx's error can show the password
	}
	config.MaxConns = 3
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // for poolers
	config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	config.ConnConfig.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			c.CustomData()[warned] = n.Message
		}
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, err
	}
	fence, err := postgres.NewFence(pool, pgx.TxOptions{})
	if err == nil {
		_, err = pool.Exec(ctx, postgres.CreateFences)
	}
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS registers (name text PRIMARY KEY, token bigint NOT NULL, value bigint NOT NULL, reads bigint NOT NULL)",
		"INSERT INTO registers VALUES ('" + registerName + "', 0, 0, 0) ON CONFLICT (name) DO NOTHING",
	} {
		if err == nil {
			_, err = pool.Exec(ctx, statement)
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &postgresRegister{pool, fence}, nil
}

func (*postgresRegister) name() string { return "postgres" }

// read also writes: its commit waits for the standby, which then has all that the read has seen.
func (r *postgresRegister) read(ctx context.Context) (found registerState, err error) {
	_, err = r.commit(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "UPDATE registers SET reads = reads + 1 WHERE name = $1 RETURNING token, value", registerName).
			Scan(&found.Token, &found.Value)
	})
	return found, err
}

func (r *postgresRegister) write(ctx context.Context, next registerState) (history.Outcome, error) {
	err := r.fence.Raise(ctx, registerName, next.Token)
	sent := false
	if err == nil {
		sent, err = r.commit(ctx, func(tx pgx.Tx) error {
			if err := r.fence.Check(ctx, tx, registerName, next.Token); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE registers SET token = $2, value = $3 WHERE name = $1", registerName, int64(next.Token), next.Value)
			return err
		})
	}
	switch {
	case err == nil:
		return history.OK, nil
	case sent:
		return history.Unknown, err
	case errors.Is(err, postgres.ErrFenced):
		// The later holder may have raised the fence, and not written yet. Then the register says nothing of it.
		if now, readErr := r.read(ctx); readErr == nil && now.Token > next.Token {
			return history.Refused, nil
		}
	}
	return history.Failed, err // nothing was committed
}

// commit runs work in a transaction. After an error sent says whether the commit was sent, so that its outcome is unknown.
func (r *postgresRegister) commit(ctx context.Context, work func(pgx.Tx) error) (sent bool, err error) {
	c, err := r.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer c.Release()
	notes := c.Conn().PgConn().CustomData()
	delete(notes, warned)
	tx, err := c.Begin(ctx)
	if err != nil {
		return false, err
	}
	if err := work(tx); err != nil {
		_ = tx.Rollback(ctx)
		return false, err
	}
	err = tx.Commit(ctx)
	if text, found := notes[warned]; found && err == nil {
		err = fmt.Errorf("%w: %v", errWarned, text)
	}
	return true, err
}

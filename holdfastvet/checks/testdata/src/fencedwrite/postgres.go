package fencedwrite

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/postgres"
)

var (
	pool *pgxpool.Pool
	conn *pgx.Conn
	held *pgxpool.Conn
	db   *sql.DB
)

func guardedRows(ctx context.Context, guard *postgres.Guard[pgx.Tx], sqlGuard *postgres.Guard[*sql.Tx],
	fence *postgres.Fence[pgx.Tx], hold *holdfast.Hold) {
	_ = guard.Do(ctx, hold, func(ctx context.Context, tx pgx.Tx) error {
		_ = pool.QueryRow(ctx, "SELECT")         // a read
		_ = pool.SendBatch(ctx, nil)             // want `pool.SendBatch is not part of the guard's transaction`
		_, _ = held.CopyFrom(ctx, nil, nil, nil) // want `held.CopyFrom is not part of the guard's transaction`

		_, err := pool.Exec(ctx, "UPDATE") // want `pool.Exec is not part of the guard's transaction: use the transaction of the guarded function`
		return err
	})
	_ = sqlGuard.Do(ctx, hold, func(ctx context.Context, tx *sql.Tx) error {
		_, err := db.ExecContext(ctx, "UPDATE") // want `db.ExecContext is not part of the guard's transaction`
		return err
	})
	_ = fence.Do(ctx, hold, func(ctx context.Context, tx pgx.Tx) error {
		_, err := conn.Exec(ctx, "UPDATE") // want `conn.Exec is not part of the guard's transaction`
		return err
	})
	// Right:
	_ = guard.Do(ctx, hold, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE")
		return err
	})
	_, _ = pool.Exec(ctx, "UPDATE")
}

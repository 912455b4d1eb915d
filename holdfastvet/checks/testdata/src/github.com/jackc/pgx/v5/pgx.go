package pgx

import "context"

type (
	Tx interface {
		Exec(ctx context.Context, sql string, arguments ...any) (any, error)
	}
	Conn struct{}
)

func (c *Conn) Exec(ctx context.Context, sql string, arguments ...any) (any, error) { return nil, nil }

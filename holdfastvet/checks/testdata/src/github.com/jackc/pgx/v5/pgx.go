package pgx

import "context"

type (
	Tx interface {
		Exec(ctx context.Context, sql string, arguments ...any) (any, error)
	}
	Conn      struct{}
	TxOptions struct{}
)

func (c *Conn) Exec(ctx context.Context, sql string, arguments ...any) (any, error) { return nil, nil }

func BeginFunc(ctx context.Context, db any, fn func(Tx) error) error { return nil }
func BeginTxFunc(ctx context.Context, db any, txOptions TxOptions, fn func(Tx) error) error {
	return nil
}

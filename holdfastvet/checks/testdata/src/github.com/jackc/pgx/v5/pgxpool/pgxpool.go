package pgxpool

import "context"

type Pool struct{}

func (p *Pool) Exec(ctx context.Context, sql string, arguments ...any) (any, error) { return nil, nil }
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) any           { return nil }
func (p *Pool) SendBatch(ctx context.Context, b any) any                            { return nil }

type Conn struct{}

func (c *Conn) CopyFrom(ctx context.Context, table, columns, rows any) (int64, error) { return 0, nil }

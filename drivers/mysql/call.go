package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
)

// mostTries is how often a request is begun on another connection because nothing was done on the one before. After a fail-over all idle
// ones can lead to the old primary.
const mostTries = maxIdle + 1

// session is a connection, for one request. The server is known.
type session struct {
	conn *sql.Conn
	*server
	sent func()
}

// do makes a request on a connection. On another one it makes it again only if the server has certainly done nothing: the connection was
// dead before, or the server has become read-only. Such a connection is not used again, so the next one can lead to another server.
func do[T any](ctx context.Context, s *store, request func(context.Context, session) (T, error)) (T, error) {
	for tries := 1; ; tries++ {
		value, err := once(ctx, s, request)
		again := errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, errReadOnly)
		if !again || tries == mostTries || ctx.Err() != nil {
			return value, classify(err)
		}
	}
}

func once[T any](ctx context.Context, s *store, request func(context.Context, session) (T, error)) (value T, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return value, err
	}
	defer func() {
		if errors.Is(err, errReadOnly) {
			discard(conn)
		}
		_ = conn.Close() // it goes back to the pool
	}()
	c := session{conn: conn, sent: s.config.sent}
	if c.server, err = s.know(ctx, conn); err != nil {
		return value, readOnly(err)
	}
	value, err = request(ctx, c)
	return value, readOnly(err)
}

// discard has the pool close a connection.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// exec makes a statement that returns no rows.
func (c session) exec(ctx context.Context, statement string) (sql.Result, error) {
	c.count()
	return c.conn.ExecContext(ctx, statement)
}

// query makes a statement, and calls row for each row of its answer. to is where the columns of a row go.
func (c session) query(ctx context.Context, statement string, row func(), to ...any) error {
	c.count()
	return eachRow(ctx, c.conn, statement, row, to...)
}

func eachRow(ctx context.Context, conn *sql.Conn, statement string, row func(), to ...any) error {
	rows, err := conn.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return err
		}
		row()
	}
	return rows.Err()
}

func (c session) count() {
	if c.sent != nil {
		c.sent()
	}
}

package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxConnections is how many connections a Locker has that Open makes, and maxIdle how many of them stay open.
	maxConnections = 10
	maxIdle        = 4
	// maxLife is after how long a connection is replaced, so that a name that leads to another server is noticed, and those to a
	// server that has hung up without a word are not kept.
	maxLife = 5 * time.Minute
)

// dialer is a [sqldriver.Connector] for the hosts of a URL.
type dialer struct {
	hosts   []*gomysql.Config
	timeout time.Duration

	ctx context.Context //nolint:containedctx // that of all attempts
	end context.CancelFunc
}

var _ sqldriver.Connector = (*dialer)(nil)

// newPool makes the pool of a Locker.
func newPool(hosts []*gomysql.Config, timeout time.Duration) (*sql.DB, *dialer) {
	d := &dialer{hosts: hosts, timeout: timeout}
	d.ctx, d.end = context.WithCancel(context.Background())
	db := sql.OpenDB(d)
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxIdle)
	db.SetConnMaxLifetime(maxLife)
	return db, d
}

// Driver implements [sqldriver.Connector].
func (d *dialer) Driver() sqldriver.Driver { return gomysql.MySQLDriver{} }

// Connect implements [sqldriver.Connector]. Of several hosts it takes the first that takes writes. All hosts together have the time
// limit of a call: package database/sql connects for calls that have ended, too.
func (d *dialer) Connect(ctx context.Context) (sqldriver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)() //nolint:contextcheck // the Locker's lifetime applies besides the caller's context
	if len(d.hosts) == 1 {
		return connectTo(ctx, d.hosts[0])
	}
	var texts []string
	lasting := true
	for _, host := range d.hosts {
		conn, err := connectToPrimary(ctx, host, d.timeout/time.Duration(len(d.hosts)))
		if err == nil {
			return conn, nil
		}
		err = classify(readOnly(err))
		lasting = lasting && driver.Lasting(err)
		texts = append(texts, host.Addr+": "+driver.ErrorText(err))
	}
	err := errors.New("no host takes writes: " + strings.Join(texts, "; "))
	if lasting { // a host that does not answer may come back
		return nil, driver.Denied(err)
	}
	return nil, err
}

// connectTo makes a connection. The client library changes a configuration that it was given.
func connectTo(ctx context.Context, host *gomysql.Config) (sqldriver.Conn, error) {
	connector, err := gomysql.NewConnector(host.Clone())
	if err != nil {
		return nil, err
	}
	return connector.Connect(ctx)
}

func connectToPrimary(ctx context.Context, host *gomysql.Config, limit time.Duration) (sqldriver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := connectTo(ctx, host)
	if err != nil {
		return nil, err
	}
	var writes string
	if err = askOne(ctx, conn, "SELECT "+takesWrites, &writes); err == nil && writes != "1" {
		err = errReadOnly
	}
	if err == nil {
		err = takesPart(ctx, conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// takesPart returns an error if a server is a node without its Galera cluster. That answers questions about itself, and refuses all else.
func takesPart(ctx context.Context, conn sqldriver.Conn) error {
	execer, is := conn.(sqldriver.ExecerContext)
	if !is {
		return errAnswer
	}
	_, err := execer.ExecContext(ctx, "DO 1", nil)
	return err
}

// askOne reads the only column of the only row of an answer.
func askOne(ctx context.Context, conn sqldriver.Conn, statement string, to *string) error {
	asker, is := conn.(sqldriver.QueryerContext)
	if !is {
		return errAnswer
	}
	rows, err := asker.QueryContext(ctx, statement, nil)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	values := make([]sqldriver.Value, 1)
	if err := rows.Next(values); err != nil {
		return err
	}
	switch v := values[0].(type) {
	case []byte:
		*to = string(v)
	default:
		*to = fmt.Sprint(v)
	}
	return nil
}

package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

const (
	// probeTime is how long a notification may take. A pooler that gives each transaction another connection accepts
	// LISTEN, and delivers nothing.
	probeTime = 3 * time.Second
	// retryUndelivered is the backoff after a probe that was not delivered.
	retryUndelivered = time.Minute
	// quietTime is how long the connection waits for a notification before the Follower is asked whether it is needed.
	quietTime = time.Second
	// idleChecks is after how many of these waits the connection is checked.
	idleChecks = 30
)

var errUndelivered = errors.New("notifications are not delivered: a pooler in transaction or statement mode is between " +
	"(see the URL parameter " + paramListen + ")")

func (l *Locker) newFollower() *waitqueue.Follower {
	return waitqueue.NewFollower(l.calls.Context(), waitqueue.Source{
		Open:   l.listen,
		Opened: l.reportListening,
		Backoff: func(err error) time.Duration {
			if errors.Is(err, errUndelivered) || errors.Is(err, errElsewhere) || hasCode(err, codeDenied) {
				return retryUndelivered
			}
			return 0
		},
		Go: l.calls.Go,
	}, waitqueue.Settings{})
}

// reportListening logs once that nothing wakes waiters, and once that something does again.
func (l *Locker) reportListening(err error) {
	switch {
	case err == nil && l.warned.Swap(false):
		l.config.logger.Info("holdfast: notifications are delivered again", "backend", backend)
	case err != nil:
		level := slog.LevelDebug
		if !l.warned.Swap(true) {
			level = slog.LevelWarn
		}
		l.config.logger.Log(context.Background(), level, "holdfast: nothing wakes waiters, they poll for released locks",
			"backend", backend, "error", textOf(err))
	}
}

// listener is a connection that listens.
type listener struct {
	l       *Locker
	conn    *pgx.Conn
	quiet   int       // waits in a row without a notification
	checked time.Time // when the latest probe was sent
}

// errMoved: the connection that listens has become useless without a sign.
var errMoved = errors.New("notifications do not arrive any more: the connection that listens reaches another server than the others do, " +
	"such as a former primary; it is opened again")

// listen opens a connection of its own and shows that notifications reach it.
func (l *Locker) listen(ctx context.Context) (waitqueue.Events, error) {
	ctx, cancel := context.WithTimeout(ctx, l.config.timeout)
	defer cancel()
	var conn *pgx.Conn
	var err error
	if l.config.listen != nil {
		dial := l.config.listen.Copy()
		l.readListenFiles(dial)
		conn, err = pgx.ConnectConfig(ctx, dial)
	} else {
		conn, err = l.dial(ctx)
	}
	if err != nil {
		return nil, err
	}
	events := &listener{l: l, conn: conn}
	if _, err = conn.PgConn().Exec(ctx, "LISTEN "+pgx.Identifier{l.channel()}.Sanitize()).ReadAll(); err == nil {
		var probe string
		if probe, err = events.probe(ctx); err == nil {
			err = events.await(ctx, probe)
		}
	}
	if errors.Is(err, errUndelivered) {
		err = events.undelivered(ctx)
	}
	if err != nil {
		events.Close()
		return nil, err
	}
	return events, nil
}

func (l *Locker) channel() string { return channelPrefix + l.id }

// probe sends a notification on another connection. On the same one it would arrive through any pooler.
func (e *listener) probe(ctx context.Context) (probe string, err error) {
	probe = rand.Text()
	err = e.l.call(ctx, nil, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, notifySQL, []string{e.l.channel()}, []string{probe})
		return err
	})
	e.checked = time.Now()
	return probe, err
}

// await waits for the notification of probe.
func (e *listener) await(ctx context.Context, probe string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for {
		n, err := e.conn.WaitForNotification(ctx)
		switch {
		case err != nil && pgconn.Timeout(err):
			return errUndelivered
		case err != nil:
			return err
		case n.Payload == probe:
			return nil
		}
		e.pass(n)
	}
}

// pass passes a notification of a release on.
func (e *listener) pass(n *pgconn.Notification) {
	var p payload
	if json.Unmarshal([]byte(n.Payload), &p) == nil && p.Name != "" {
		e.l.follower.Event(p.Name, p.Waiter, time.Duration(p.Turn)*time.Millisecond)
	}
}

// check finds out whether notifications still arrive. The connection can be dead without a sign, or that of a former primary,
// while the others are those of the new one.
func (e *listener) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.l.config.timeout)
	defer cancel()
	probe, err := e.probe(ctx)
	if err != nil { // which says nothing about this connection
		return e.conn.Ping(ctx)
	}
	if err = e.await(ctx, probe); errors.Is(err, errUndelivered) {
		err = errMoved
		e.l.reportListening(err)
	}
	return err
}

// Next implements [waitqueue.Events].
func (e *listener) Next(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	n, err := e.conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		e.quiet = 0
		e.pass(n)
		return nil
	case waiting.Err() == nil || e.conn.IsClosed():
		return fmt.Errorf("the connection that listens has ended: %w", err)
	}
	if e.quiet++; e.quiet%idleChecks == 0 || e.l.conns.madeAfter(e.checked) {
		return e.check(ctx)
	}
	return nil
}

// Close implements [waitqueue.Events].
func (e *listener) Close() { closeConn(e.conn) }

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

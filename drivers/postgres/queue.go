package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
)

const (
	channelPrefix = "holdfast_"
	// probeTime is how long a notification may take. A pooler that gives each transaction another connection accepts
	// LISTEN, and delivers nothing.
	probeTime = 3 * time.Second
	// retryUndelivered is the backoff after a probe that was not delivered.
	retryUndelivered = time.Minute
	// quietTime is how long the connection waits for a notification before the Follower is asked whether it is needed.
	quietTime = time.Second
	// idleChecks is after how many of these waits the connection is checked.
	idleChecks = 30
	// wakeTime limits the statement that wakes waiters.
	wakeTime = time.Second
)

// place is what stands for a waiter in a queue: the Locker, whose connection listens, and the waiter of that Locker.
// Neither is a secret.
func (l *Locker) place(waiter driver.WaiterID) string {
	if waiter == "" {
		return ""
	}
	return l.id + "." + string(waiter)
}

// payload is the text of a notification.
type payload struct {
	Name   string          `json:"name,omitempty"`
	Waiter driver.WaiterID `json:"waiter,omitempty"`
	Turn   int64           `json:"turnMilliseconds,omitempty"`
}

// wakeups are notifications to send.
type wakeups struct{ channels, payloads []string }

// add adds those for the waiters of a lock that has become free.
func (w *wakeups) add(name string, k *lockstate.Lock, now lockstate.Moment) {
	for _, waiter := range k.Woken(now) {
		locker, id, ok := strings.Cut(waiter.ID, ".")
		if !ok {
			continue // of another program
		}
		w.channels = append(w.channels, channelPrefix+locker)
		w.payloads = append(w.payloads, mustJSON(payload{Name: name, Waiter: driver.WaiterID(id),
			Turn: driver.Turn(k.Position(waiter.ID)).Milliseconds()}))
	}
}

// collect reads names of free locks with their queues, adds the waiters, and returns the names. A queue that is damaged wakes nobody.
func (w *wakeups) collect(rows pgx.Rows) (names map[string]bool, err error) {
	names = map[string]bool{}
	var name string
	var queue []byte
	var now time.Time
	var free bool
	_, err = pgx.ForEachRow(rows, []any{&name, &queue, &now, &free}, func() error {
		if !free {
			return errNotStored
		}
		names[name] = true
		if waiters, err := decodeQueue(queue); err == nil && len(waiters) > 0 {
			w.add(fromText(name), &lockstate.Lock{Queue: waiters}, moment(now))
		}
		return nil
	})
	return names, err
}

// wake sends notifications in a transaction of their own: a commit with one takes a lock of the whole database. If that fails, they are
// sent once more, by a call with a time limit of its own: the release may have taken nearly all of its own, and waiters
// that believe that they are woken poll seldom.
func (l *Locker) wake(ctx context.Context, c *pgx.Conn, calls wakeups) {
	if len(calls.channels) == 0 {
		return
	}
	send := func(ctx context.Context, c *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, wakeTime)
		defer cancel()
		_, err := c.Exec(ctx, notifySQL, calls.channels, calls.payloads)
		return err
	}
	if send(ctx, c) == nil {
		return
	}
	l.calls.Go(func() {
		if err := l.call(l.calls.Context(), nil, send); err != nil {
			l.config.logger.Debug("holdfast: no waiter was notified, waiters poll for the released lock", "backend", backend, "error", textOf(err))
		}
	})
}

// Wake implements [driver.Waker]. A waiter without an ID is not woken.
func (l *Locker) Wake(name string, waiter driver.WaiterID, wake func(driver.Wakeup)) (stop func()) {
	if waiter == "" {
		wake(driver.Wakeup{Kind: driver.WakingEnded})
		return func() {}
	}
	return l.follower.Wake(name, waiter, wake)
}

// Leave implements [driver.Queue] with a statement for every 500 names.
func (l *Locker) Leave(ctx context.Context, waiter driver.WaiterID, names []string) error {
	return l.do(ctx, "leave queues", "", driver.ValidateLeave(waiter, names, limits), func(ctx context.Context, c *pgx.Conn) error {
		for part := range slices.Chunk(names, batchSize) {
			texts := make([]string, len(part))
			for i, name := range part {
				texts[i] = toText(name)
			}
			if _, err := c.Exec(ctx, l.sql.leave, texts, l.place(waiter)); err != nil {
				return err
			}
		}
		return nil
	})
}

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

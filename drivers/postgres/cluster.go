package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// identity is what a server says about the cluster to which it belongs.
type identity struct {
	system   string // the cluster's system identifier; empty if the server does not say
	standby  bool
	timeline uint64 // of a primary: each promotion begins the next one
	started  string // when the server was started
}

// identitySQL reads it. The timeline is that of the present writes: that of the last checkpoint lags behind a promotion.
const identitySQL = `SELECT system_identifier, pg_is_in_recovery(), pg_postmaster_start_time(),
	CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END FROM pg_control_system()`

// unanswered are the classes of errors of connections, of the server's state and of its machine. Every other error is the answer of a
// server that does not say: the right was revoked, or a hosted service lacks the functions, each with a code of its own.
var unanswered = []string{"08", "28", "3D", "40", "53", "57", "58"}

// identify reads the identity of the server of a connection. A server that does not say has an empty one.
func identify(ctx context.Context, c *pgconn.PgConn) (id identity, err error) {
	results, err := c.Exec(ctx, identitySQL).ReadAll()
	switch code := sqlState(err); {
	case code != "" && !slices.Contains(unanswered, code[:2]):
		return identity{}, nil
	case err != nil:
		return identity{}, err
	case len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 4:
		return identity{}, nil
	}
	row := results[0].Rows[0]
	id = identity{system: string(row[0]), standby: string(row[1]) == "t", started: string(row[2])}
	if !id.standby {
		id.timeline, _ = strconv.ParseUint(string(row[3]), 16, 32) // 0 is lower than every other
	}
	return id, nil
}

var (
	errOtherCluster = errors.New("the server belongs to another cluster")
	errOldPrimary   = errors.New("the server is an old primary")
)

// cluster is what a Locker remembers of the primaries that it has used. Its methods are safe for concurrent use.
//
// Promise 1: a host that says that it is a primary may be one of another cluster, or one that has been replaced by a standby. Locks
// there are others. A process that has just started cannot know that.
type cluster struct {
	mu       sync.Mutex
	system   string
	timeline uint64
	silent   bool // no server has said
}

// timelineNote is where a connection notes the timeline of its primary.
const timelineNote = "holdfast.timeline"

// admit checks and remembers an identity.
func (k *cluster) admit(id identity) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case id.system == "":
		k.silent = k.system == ""
		return nil
	case k.system != "" && id.system != k.system:
		return fmt.Errorf("%w: its system identifier is %s, and that of the servers that this program has used is %s; correct the hosts, or "+
			"restart the program if the servers were replaced, as by pg_upgrade", errOtherCluster, id.system, k.system)
	case id.standby:
		return nil // it grants nothing
	case id.timeline < k.timeline:
		return fmt.Errorf("%w: its timeline is %d, and this program has used %d; stop it or make it a standby of the new primary, or "+
			"restart the program if that one was given up", errOldPrimary, id.timeline, k.timeline)
	}
	k.system, k.timeline = id.system, id.timeline
	return nil
}

// asks reports whether servers are asked: not again those that do not say, which would log each refusal.
func (k *cluster) asks() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.silent
}

// checked returns what checks each new connection that theirs accepts. In a list of hosts a refusal leads to the next one. So
// acquires, renewals and releases need no further request. That a server does not say its identity counts only if it is used: a
// standby may be unable to answer, for another reason than the primary would have.
func (k *cluster) checked(theirs pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, c *pgconn.PgConn) error {
		if theirs != nil {
			if err := theirs(ctx, c); err != nil {
				return err
			}
		}
		if k.asks() {
			id, err := identify(ctx, c)
			if err == nil {
				err = k.admit(id)
			}
			if err != nil {
				return err
			}
			c.CustomData()[timelineNote] = id.timeline
		}
		return nil
	}
}

// left reports whether a connection leads to a primary that has been replaced since it was made.
func (k *cluster) left(c *pgconn.PgConn) bool {
	timeline, noted := c.CustomData()[timelineNote].(uint64)
	k.mu.Lock()
	defer k.mu.Unlock()
	return noted && timeline > 0 && timeline < k.timeline
}

// lasting is the error of a connection that was refused. If all hosts belong to another cluster, only a person can help. An old
// primary may be stopped at any moment, and a host that does not answer may come back.
func lasting(err error) error {
	if err == nil || !errors.Is(err, errOtherCluster) {
		return nil
	}
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return nil
	}
	if all, ok := errors.Unwrap(connect).(interface{ Unwrap() []error }); ok {
		for _, one := range all.Unwrap() {
			if !errors.Is(one, errOtherCluster) {
				return nil
			}
		}
	}
	return driver.Denied(errors.New(textOf(err)))
}

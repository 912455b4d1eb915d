package oldlocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/migrating"
)

// Table describes the table of ShedLock. The columns have ShedLock's names: name, lock_until, locked_at and locked_by.
type Table struct {
	// Name is that of the table, perhaps after its database and a dot. The default is shedlock.
	Name string
	// Skew is how far the clocks of the other programs may be from the server's clock. They judge by their own clocks when a lock ends,
	// unless they are configured with usingDbTime. A lock is held this much longer for them, and is taken this much later after its end. The
	// default is 1s. Programs that write whole seconds end their leases up to 1s before lockAtMostFor, so it needs 1s more for them: with
	// columns that have no parts of seconds, and with MySQL's Connector/J on MariaDB 10 without usingDbTime.
	Skew time.Duration
	// SessionsInUTC says that all sessions of the other programs have the time zone UTC. A table whose times are of the type TIMESTAMP is
	// refused without it: what a session writes and reads there depends on its time_zone, which no other session can find out. Where they
	// have another zone, change the columns to DATETIME(3) while no task runs, in a session with the time_zone of the other programs.
	SessionsInUTC bool
}

const (
	defaultTable = "shedlock"
	defaultSkew  = time.Second
	maxSkew      = time.Hour
	// maxLease is the greatest TTL of a row. A TIMESTAMP ends in 2038.
	maxLease = 365 * 24 * time.Hour
)

// ShedLock has the locks of programs with ShedLock's JDBC providers. It is safe for concurrent use.
//
// A lock is a row. It ends at lock_until, a time in UTC. So the other programs must be configured with usingDbTime, or write UTC by
// themselves; jOOQ's and Exposed's providers write the local time of their session. A row that was locked in the future is refused.
//
// Columns of the type TIMESTAMP depend on the time zone of each session, too. They need [Table.SessionsInUTC], and are refused if the
// server or the session of this program is not in UTC. Columns of the type DATETIME have the same time for all sessions.
//
// Where lock_until has no parts of seconds, a lease ends up to a second later than it must. Names that the collation of the column name
// takes for the same one are one lock, as they are for ShedLock: most collations ignore case. A name that is longer than the column is
// invalid, and one with a character that the column cannot have is denied.
//
// While the lock is held here, locked_by ends with a mark of the acquisition. Each acquisition replaces it, so as long as it is there
// nobody else has had the lock since. A late request of another program, whose locked_by is another, does not touch the row. An exception
// are programs with ShedLock 6 or older and without usingDbTime: they unlock by the name alone. If a task of theirs outlives its
// lockAtMostFor, its unlock frees the row of a migrated holder. Then another program can take the lock beside that holder, until the
// holder's next renewal reports the loss. Rows are never removed, because ShedLock inserts each only once.
//
// Each statement is one request, and commits by itself: no transaction of the program is used. The first call reads the types of the
// columns and the server's settings once, and refuses a table or a server that cannot have the locks.
type ShedLock struct {
	db            *sql.DB
	table         string // quoted
	skew          time.Duration
	sessionsInUTC bool

	known atomic.Pointer[server]
}

var _ migrating.Old = (*ShedLock)(nil)

var validTable = regexp.MustCompile(`^[A-Za-z0-9_$-]{1,64}(\.[A-Za-z0-9_$-]{1,64})?$`)

// NewShedLock returns the locks of a table. It makes no request. The pool leads to the server of the other programs, by the driver
// of github.com/go-sql-driver/mysql, and stays the caller's.
func NewShedLock(db *sql.DB, table Table) (*ShedLock, error) {
	if table.Name == "" {
		table.Name = defaultTable
	}
	if table.Skew == 0 {
		table.Skew = defaultSkew
	}
	switch {
	case db == nil:
		return nil, driver.Invalid("db", "nil", "a *sql.DB")
	case !validTable.MatchString(table.Name):
		return nil, driver.Invalid("Name", driver.Quote(table.Name), "the name of a table, or DATABASE.TABLE")
	case table.Skew < 0 || table.Skew > maxSkew:
		return nil, driver.Invalid("Skew", driver.FormatDuration(table.Skew), "from 0 to "+driver.FormatDuration(maxSkew))
	}
	quoted := "`" + strings.Replace(table.Name, ".", "`.`", 1) + "`"
	return &ShedLock{db: db, table: quoted, skew: table.Skew, sessionsInUTC: table.SessionsInUTC}, nil
}

// Info implements [migrating.Old]. Whether grants survive a fail-over of the server is not known.
func (l *ShedLock) Info() driver.Info {
	return driver.Info{Backend: backend, Limits: driver.Limits{MaxTTL: maxLease}, Expiry: driver.ByServer,
		Failover: driver.GrantsMayBeForgotten}
}

// row is what the table has of a lock.
type row struct {
	there, mine bool
	owner       sql.NullString // locked_by
	over        bool           // lock_until has passed, for the other programs, too
	left        time.Duration  // until lock_until
	fits        bool           // the column can have the end of a lease that begins now
}

// mark ends locked_by.
func mark(claim migrating.Claim) string { return " " + claim.Proof }

// heldBy is the condition that a row is that of a claim. The owner before the mark proves nothing: a claim may come without.
func heldBy(claim migrating.Claim) string { return "locked_by LIKE " + literal("%"+mark(claim)) }

// maxOwner is how much of an owner is written at most: locked_by has 255 characters, or less.
const maxOwner = 200

// unwritten are characters that a column of another character set cannot have.
var unwritten = regexp.MustCompile(`[^ -~]`)

// marks finds the mark of any acquisition, which is for programs.
var marks = regexp.MustCompile(` [0-9a-f]{32}$`)

func (s *server) ownerOf(claim migrating.Claim) string {
	owner := unwritten.ReplaceAllString(claim.Owner, "?")
	return owner[:min(len(owner), s.maxOwner)] + mark(claim)
}

// after is the server's time plus d.
func after(d time.Duration) string {
	return fmt.Sprintf("TIMESTAMPADD(MICROSECOND, %d, UTC_TIMESTAMP(6))", d.Microseconds())
}

// until is the end of a lease that begins now, in a row that is there. A row of the claim never ends earlier than before. The column may
// have fewer digits after the point than six: its text has 19 characters without any, and 20 more than it has digits. The last digit is
// rounded up here, because servers round down or to the nearest.
func (l *ShedLock) until(claim migrating.Claim) string {
	end := fmt.Sprintf("TIMESTAMPADD(MICROSECOND, %d + POW(10, 26 - GREATEST(20, CHAR_LENGTH(lock_until))), UTC_TIMESTAMP(6))",
		(claim.TTL+l.skew).Microseconds()-1)
	// Promise 1: a statement has the time of its beginning. One that then waits, such as for a backup, may come after a later one.
	return "IF(" + heldBy(claim) + ", GREATEST(lock_until, " + end + "), " + end + ")"
}

// ended is when the lease of a free row ended: it is over also if the column rounds to seconds.
func (l *ShedLock) ended() time.Duration { return -l.skew - time.Second }

// ofMicros is a duration, the longest one for more: some write the year 9999.
func ofMicros(n int64) time.Duration {
	const most = int64(math.MaxInt64/time.Microsecond) - 1
	return time.Duration(max(-most, min(most, n))) * time.Microsecond
}

// fits is the condition that the column can have the end of a lease that begins now.
//
// Promise 1: a session that is not strict would write zeros instead, which look like a lease that is over.
func (l *ShedLock) fits(s *server, claim migrating.Claim) string {
	if !s.timestamps {
		return "TRUE"
	}
	return after(claim.TTL+l.skew+time.Second) + " <= '" + lastTimestamp + "'"
}

// lastTimestamp is the last time that a column of the type TIMESTAMP can have on all servers.
const lastTimestamp = "2038-01-19 03:14:07"

func (l *ShedLock) errLate(ctx context.Context) error {
	return l.failed(ctx, driver.Denied(fmt.Errorf("lock_until has the type TIMESTAMP, which ends at %s, and the lease ends "+
		"later: use a shorter TTL, or change the column to DATETIME(3)", lastTimestamp)))
}

// read reads the row of a lock. It refuses a session or a row that cannot be believed.
func (l *ShedLock) read(ctx context.Context, conn *sql.Conn, s *server, claim migrating.Claim) (r row, err error) {
	var writes, commitsAlone, inZone, waits bool
	var zones string
	var left, since sql.NullInt64
	err = conn.QueryRowContext(ctx, s.prefix+"SELECT "+takesWrites+", "+commits+", "+s.inZone+", "+zoneNames+", "+s.waits+", "+
		l.fits(s, claim)+", t.name IS NOT NULL, t.locked_by, "+
		"TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), t.lock_until), TIMESTAMPDIFF(MICROSECOND, t.locked_at, UTC_TIMESTAMP(6)) "+
		"FROM (SELECT 1) AS one LEFT JOIN "+l.table+" AS t ON t.name = "+literal(claim.Name)).
		Scan(&writes, &commitsAlone, &inZone, &zones, &waits, &r.fits, &r.there, &r.owner, &left, &since)
	r.left = ofMicros(left.Int64)
	r.over = r.left <= -l.skew
	r.mine = strings.HasSuffix(r.owner.String, mark(claim))
	switch ahead := -ofMicros(since.Int64); {
	case err != nil:
	case !writes:
		err = errReadOnly
	case !commitsAlone:
		err = errors.New("autocommit is off, or a transaction was left open: give the locks a pool of their own")
	case !inZone:
		err = driver.Denied(fmt.Errorf("the times are of the type TIMESTAMP, and time_zone is %s: set default_time_zone='+00:00' for the "+
			"server and no time_zone for this pool, or change lock_until and locked_at to DATETIME(3)", zones))
	case !waits:
		err = driver.Denied(errors.New("a node of this cluster does not wait for the writes of others: set wsrep_sync_wait=3 on all nodes"))
	case r.there && !left.Valid:
		err = fmt.Errorf("the row %s has no time in lock_until", driver.Quote(claim.Name))
	case ahead > l.skew+time.Second: // some columns round to seconds
		err = fmt.Errorf("the row %s was locked %v in the future: use usingDbTime or UTC in the programs with ShedLock, correct their clocks, "+
			"or raise Skew", driver.Quote(claim.Name), ahead.Round(time.Second))
	}
	return r, l.failed(ctx, err)
}

// write makes a statement that writes one row. It returns false if no row was changed: none is meant, or it is like that already.
func (l *ShedLock) write(ctx context.Context, conn *sql.Conn, s *server, statement string) (changed bool, err error) {
	result, err := conn.ExecContext(ctx, s.prefix+statement+" AND "+s.usable())
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func (l *ShedLock) failed(ctx context.Context, err error) error {
	return failed(ctx, "the table "+l.table, err)
}

// acquireTries is how often a row is written while others write it at the same time.
const acquireTries = 4

// Acquire implements [migrating.Old]. An acquisition that comes after its release, late, leaves the lock held by nobody until its lease is
// over.
func (l *ShedLock) Acquire(ctx context.Context, claim migrating.Claim) error {
	conn, s, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := s.checkName(claim.Name); err != nil {
		return err
	}
	// A new row is free: only an update knows the column's digits.
	insert := "INSERT INTO " + l.table + " (name, lock_until, locked_at, locked_by) SELECT " + literal(claim.Name) + ", " +
		after(l.ended()) + ", UTC_TIMESTAMP(), '' FROM DUAL WHERE TRUE"
	// Promise 1: the server compares and writes in one step. Of a row that is not over it changes that of this claim alone.
	update := "UPDATE " + l.table + " SET lock_until = " + l.until(claim) + ", locked_at = IF(" + heldBy(claim) +
		", locked_at, UTC_TIMESTAMP()), locked_by = " + literal(s.ownerOf(claim)) + " WHERE name = " + literal(claim.Name) +
		" AND (" + heldBy(claim) + " OR lock_until <= " + after(-l.skew) + ") AND " + l.fits(s, claim)
	tried := false
	for try := 0; ; try++ {
		r, err := l.read(ctx, conn, s, claim)
		switch {
		case err != nil:
			return err
		case r.mine && tried && r.left >= claim.TTL: // a request for the same claim was faster
			return nil
		case r.there && !r.mine && !r.over:
			record := driver.Record{Name: claim.Name, State: driver.StateHeld, Owner: marks.ReplaceAllString(r.owner.String, "")}
			if record.Owner == r.owner.String { // a lease of a migrated program ends before its row, by its own Skew
				record.Remaining, record.RemainingKnown = min(r.left, driver.MaxTTL)+l.skew, true
			}
			return &driver.HeldError{Record: record}
		case !r.fits:
			return l.errLate(ctx)
		case try == acquireTries:
			return l.failed(ctx, errors.New("others write the row all the time"))
		}
		statement := update
		if !r.there {
			statement = insert
		}
		changed, err := l.write(ctx, conn, s, statement)
		switch {
		case err != nil && !hasCode(err, codeDuplicate, codeDeadlock): // then nothing was done
			return l.failed(ctx, err)
		case err == nil && changed && r.there:
			return nil
		}
		tried = true
	}
}

// Renew implements [migrating.Old]. A lease that is over is renewed if nobody else has had the lock since.
func (l *ShedLock) Renew(ctx context.Context, claim migrating.Claim) error {
	conn, s, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	r, err := l.change(ctx, conn, s, claim, "lock_until = "+l.until(claim), l.fits(s, claim))
	switch {
	case err != nil:
		return err
	case !r.mine:
		return driver.ErrLost
	case !r.fits:
		return l.errLate(ctx)
	case r.left < claim.TTL: // the server took no writes for a moment
		return l.failed(ctx, errors.New("the lease was not extended"))
	}
	return nil
}

// Release implements [migrating.Old].
//
// Promise 1: without the mark in the row, a late renewal does not take the lock again.
func (l *ShedLock) Release(ctx context.Context, claim migrating.Claim) error {
	conn, s, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	owner := fmt.Sprintf("LEFT(locked_by, CHAR_LENGTH(locked_by) - %d)", len(mark(claim)))
	_, err = l.change(ctx, conn, s, claim, "lock_until = "+after(l.ended())+", locked_by = "+owner, "TRUE")
	return err
}

// change writes columns of the row of a claim under a condition. If nothing is changed, it returns the row, which may be another's.
//
// Promise 6: the mark is that of this acquisition, so a late request does not touch another's row.
func (l *ShedLock) change(ctx context.Context, conn *sql.Conn, s *server, claim migrating.Claim, set, condition string) (row, error) {
	changed, err := l.write(ctx, conn, s, "UPDATE "+l.table+" SET "+set+" WHERE name = "+literal(claim.Name)+" AND "+heldBy(claim)+
		" AND "+condition)
	if err != nil || changed {
		return row{mine: true, fits: true, left: math.MaxInt64}, l.failed(ctx, err)
	}
	return l.read(ctx, conn, s, claim)
}

package oldlocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
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
	// default is 1s.
	Skew time.Duration
}

const (
	defaultTable = "shedlock"
	defaultSkew  = time.Second
	maxSkew      = time.Hour
)

// ShedLock has the locks of programs with ShedLock's JDBC providers. It is safe for concurrent use.
//
// A lock is a row. It ends at lock_until, a time in UTC. So the other programs must be configured with usingDbTime, or run in UTC. In a
// column of the type TIMESTAMP a time depends on the time zone of the session, too: a session that has another one than the server is
// refused, and so is a row that was locked in the future. With such columns the server's zone must be UTC, and no other program may set
// time_zone for its sessions.
//
// Where lock_until has no parts of seconds, a lease ends up to a second later than it must. Names that the collation of the column name
// takes for the same one are one lock, as they are for ShedLock: most collations ignore case. One with a character that the column
// cannot have is denied.
//
// While the lock is held here, locked_by ends with a mark of the acquisition. Each acquisition replaces it, so as long as it is there
// nobody else has had the lock since. A late request of another program, whose locked_by is another, does not touch the row, except that
// some programs without usingDbTime unlock by the name alone: then another can take the lock beside the holder, until the holder's next
// renewal reports the loss. Rows are never removed, because ShedLock inserts each only once.
//
// Each statement is one request, and commits by itself: no transaction of the program is used.
type ShedLock struct {
	db    *sql.DB
	table string // quoted
	skew  time.Duration
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
	return &ShedLock{db: db, table: "`" + strings.Replace(table.Name, ".", "`.`", 1) + "`", skew: table.Skew}, nil
}

// Info implements [migrating.Old]. Whether grants survive a fail-over of the server is not known.
func (l *ShedLock) Info() driver.Info {
	return driver.Info{Backend: backend, Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten}
}

// Conditions of a session that is believed. MariaDB alone says whether a transaction is open, and reads that comment.
//
// Promise 1: otherwise others would not see what is written, or would read another time.
const (
	commits  = "@@autocommit = 1 /*M! AND @@in_transaction = 0 */"
	sameZone = "@@session.time_zone = @@global.time_zone"
	usable   = takesWrites + " AND " + commits + " AND " + sameZone
)

// row is what the table has of a lock.
type row struct {
	there, mine bool
	owner       sql.NullString // locked_by
	over        bool           // lock_until has passed, for the other programs, too
	left        time.Duration  // until lock_until
}

// mark ends locked_by.
func mark(claim migrating.Claim) string { return " " + claim.Proof }

// heldBy is the condition that a row is that of a claim. The owner before the mark proves nothing: a claim may come without.
func heldBy(claim migrating.Claim) string { return "locked_by LIKE " + literal("%"+mark(claim)) }

// maxOwner is how much of an owner is written: locked_by has 255 characters.
const maxOwner = 200

// unwritten are characters that a column of another character set cannot have.
var unwritten = regexp.MustCompile(`[^ -~]`)

// marks finds the mark of any acquisition, which is for programs.
var marks = regexp.MustCompile(` [0-9a-f]{32}$`)

func ownerOf(claim migrating.Claim) string {
	owner := unwritten.ReplaceAllString(claim.Owner, "?")
	return owner[:min(len(owner), maxOwner)] + mark(claim)
}

// after is the server's time plus d.
func after(d time.Duration) string {
	return fmt.Sprintf("TIMESTAMPADD(MICROSECOND, %d, UTC_TIMESTAMP(6))", d.Microseconds())
}

// until is the end of a lease that begins now, in a row that is there. The column may have fewer digits after the point than six: its
// text has 19 characters without any, and 20 more than it has digits. The last digit is rounded up here, because servers round down or to
// the nearest.
func (l *ShedLock) until(claim migrating.Claim) string {
	return fmt.Sprintf("TIMESTAMPADD(MICROSECOND, %d + POW(10, 26 - GREATEST(20, CHAR_LENGTH(lock_until))), UTC_TIMESTAMP(6))",
		(claim.TTL+l.skew).Microseconds()-1)
}

// ended is when the lease of a free row ended: it is over also if the column rounds to seconds.
func (l *ShedLock) ended() time.Duration { return -l.skew - time.Second }

// ofMicros is a duration, the longest one for more: some write the year 9999.
func ofMicros(n int64) time.Duration {
	const most = int64(math.MaxInt64/time.Microsecond) - 1
	return time.Duration(max(-most, min(most, n))) * time.Microsecond
}

// read reads the row of a lock. It refuses a session or a row that cannot be believed.
func (l *ShedLock) read(ctx context.Context, conn *sql.Conn, claim migrating.Claim) (r row, err error) {
	var writes, commitsAlone, zone bool
	var left, since sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT "+takesWrites+", "+commits+", "+sameZone+", t.name IS NOT NULL, t.locked_by, "+
		"TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), t.lock_until), TIMESTAMPDIFF(MICROSECOND, t.locked_at, UTC_TIMESTAMP(6)) "+
		"FROM (SELECT 1) AS one LEFT JOIN "+l.table+" AS t ON t.name = "+literal(claim.Name)).
		Scan(&writes, &commitsAlone, &zone, &r.there, &r.owner, &left, &since)
	r.left = ofMicros(left.Int64)
	r.over = r.left <= -l.skew
	r.mine = strings.HasSuffix(r.owner.String, mark(claim))
	switch ahead := -ofMicros(since.Int64); {
	case err != nil:
	case !writes:
		err = errReadOnly
	case !commitsAlone:
		err = errors.New("autocommit is off, or a transaction was left open: give the locks a pool of their own")
	case !zone:
		err = driver.Denied(errors.New("the session has another time_zone than the server: set none for this pool"))
	case r.there && !left.Valid:
		err = fmt.Errorf("the row %s has no time in lock_until", driver.Quote(claim.Name))
	case ahead > l.skew+time.Second: // some columns round to seconds
		err = fmt.Errorf("the row %s was locked %v in the future: use usingDbTime or UTC in the programs with ShedLock, correct their clocks, "+
			"or raise Skew", driver.Quote(claim.Name), ahead.Round(time.Second))
	}
	return r, l.failed(ctx, err)
}

// write makes a statement that writes one row. It returns false if no row was changed: none is meant, or it is like that already.
func (l *ShedLock) write(ctx context.Context, conn *sql.Conn, statement string) (changed bool, err error) {
	result, err := conn.ExecContext(ctx, statement+" AND "+usable)
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

// Acquire implements [migrating.Old].
func (l *ShedLock) Acquire(ctx context.Context, claim migrating.Claim) error {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return l.failed(ctx, err)
	}
	defer func() { _ = conn.Close() }()
	// A new row is free: only an update knows the column's digits.
	insert := "INSERT INTO " + l.table + " (name, lock_until, locked_at, locked_by) SELECT " + literal(claim.Name) + ", " +
		after(l.ended()) + ", UTC_TIMESTAMP(), '' FROM DUAL WHERE TRUE"
	// Promise 1: the server compares and writes in one step. Of a row that is not over it changes that of this claim alone.
	update := "UPDATE " + l.table + " SET lock_until = " + l.until(claim) + ", locked_at = IF(" + heldBy(claim) +
		", locked_at, UTC_TIMESTAMP()), locked_by = " + literal(ownerOf(claim)) + " WHERE name = " + literal(claim.Name) +
		" AND (" + heldBy(claim) + " OR lock_until <= " + after(-l.skew) + ")"
	written := false
	for try := 0; ; try++ {
		r, err := l.read(ctx, conn, claim)
		switch {
		case err != nil:
			return err
		case r.mine && written:
			return nil
		case r.there && !r.mine && !r.over:
			record := driver.Record{Name: claim.Name, State: driver.StateHeld, Owner: marks.ReplaceAllString(r.owner.String, "")}
			if record.Owner == r.owner.String { // a lease of a migrated program ends before its row, by its own Skew
				record.Remaining, record.RemainingKnown = min(r.left, driver.MaxTTL)+l.skew, true
			}
			return &driver.HeldError{Record: record}
		case try == acquireTries:
			return l.failed(ctx, errors.New("others write the row all the time"))
		}
		statement := update
		if !r.there {
			statement = insert
		}
		_, err = l.write(ctx, conn, statement)
		if written = err == nil; err != nil && !hasCode(err, codeDuplicate, codeDeadlock) { // then nothing was done
			return l.failed(ctx, err)
		}
	}
}

// Renew implements [migrating.Old]. A lease that is over is renewed if nobody else has had the lock since.
func (l *ShedLock) Renew(ctx context.Context, claim migrating.Claim) error {
	mine, err := l.change(ctx, claim, "lock_until = "+l.until(claim))
	if err == nil && !mine {
		err = driver.ErrLost
	}
	return err
}

// Release implements [migrating.Old].
//
// Promise 1: without the mark in the row, a late renewal does not take the lock again.
func (l *ShedLock) Release(ctx context.Context, claim migrating.Claim) error {
	owner := fmt.Sprintf("LEFT(locked_by, CHAR_LENGTH(locked_by) - %d)", len(mark(claim)))
	_, err := l.change(ctx, claim, "lock_until = "+after(l.ended())+", locked_by = "+owner)
	return err
}

// change writes columns of the row of a claim. It returns false if the row is another's, or is gone.
//
// Promise 6: the mark is that of this acquisition, so a late request does not touch another's row.
func (l *ShedLock) change(ctx context.Context, claim migrating.Claim, set string) (mine bool, err error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return false, l.failed(ctx, err)
	}
	defer func() { _ = conn.Close() }()
	changed, err := l.write(ctx, conn, "UPDATE "+l.table+" SET "+set+" WHERE name = "+literal(claim.Name)+" AND "+heldBy(claim))
	if err != nil || changed {
		return changed, l.failed(ctx, err)
	}
	r, err := l.read(ctx, conn, claim)
	return r.mine, err
}

// Package oldlocks holds locks of other programs in DynamoDB: the rows of awslabs' amazon-dynamodb-lock-client, in Java, and of its port to
// Go, cirello.io/dynamolock. They are old locks for package [github.com/holdfast-go/holdfast/migrating].
package oldlocks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/sightings"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
	"github.com/holdfast-go/holdfast/migrating"
)

const (
	backend = "dynamodb"
	rights  = "dynamodb:GetItem, dynamodb:UpdateItem, dynamodb:DescribeTable and dynamodb:DescribeTimeToLive"
)

// Client is what programs hold their locks with.
type Client string

const (
	// Java is amazon-dynamodb-lock-client. It writes leaseDuration as milliseconds, such as 20000.
	Java Client = "Java"
	// Dynamolock is cirello.io/dynamolock, in all its versions. It writes 20s.
	Dynamolock Client = "dynamolock"
)

// Table describes the table of the other programs.
type Table struct {
	Name string
	// Client is that of the other programs; it has no default. Neither reads the leaseDuration that the other has written, and a
	// row with that of the wrong one is refused.
	Client Client
	// SortKey is the value of the sort key of each row, if the table has one.
	SortKey string
}

// DynamoLock has the locks of programs with amazon-dynamodb-lock-client or dynamolock. It is safe for concurrent use.
//
// A lock is a row. Its holder renews it by a new recordVersionNumber. A row that stays unchanged for its leaseDuration is taken over; each
// process judges that by its own elapsed time. So an Acquire takes over only if an earlier one of the same DynamoLock, at least that
// long ago, has seen the same row. A row that has isReleased is free. Every write demands the recordVersionNumber that was read.
//
// Whatever else the other programs keep in a row stays, such as data. A release marks the row, and does not delete it.
type DynamoLock struct {
	at        *dynamo.Table
	table     Table
	key, sort string // the names of the key's attributes
	elapsed   func() time.Duration
	seen      sightings.Memory[mark]
}

var _ migrating.Old = (*DynamoLock)(nil)

// NewDynamoLock returns the locks of a table, with a program's own configuration, of which it uses what the driver does. It asks DynamoDB
// for the table's key, and refuses a global table. Each request is made once, with a time limit of 5 s.
func NewDynamoLock(ctx context.Context, config aws.Config, table Table) (*DynamoLock, error) {
	if err := dynamo.CheckName("Name", table.Name); err != nil {
		return nil, err
	}
	if table.Client != Java && table.Client != Dynamolock {
		return nil, driver.Invalid("Client", driver.Quote(string(table.Client)), "oldlocks.Java or oldlocks.Dynamolock")
	}
	at, err := dynamo.New(ctx, config, table.Name, "", nil)
	if err != nil {
		return nil, &driver.OpError{Op: "connect", Backend: backend, Err: err}
	}
	at.Rights, at.Missing = rights, "correct its name or the region"
	began := time.Now()
	l := &DynamoLock{at: at, table: table, elapsed: func() time.Duration { return time.Since(began) }}
	if err := l.prepare(ctx); err != nil {
		at.Calls.Close()
		return nil, &driver.OpError{Op: "connect", Backend: backend, Err: err}
	}
	return l, nil
}

// prepare finds out what the key of the table is.
//
// Promise 1: nobody uses a table that may be a global one.
func (l *DynamoLock) prepare(ctx context.Context) error {
	d, err := l.at.Describe(ctx)
	switch {
	case dynamo.HasCode(err, dynamo.CodeDenied):
		return driver.Denied(fmt.Errorf("the user may not dynamodb:DescribeTable on the table %s: nobody knows whether it is a global table, in "+
			"which the last of two writes wins. Allow it", l.table.Name))
	case err != nil:
		return err
	}
	for _, part := range d.KeySchema {
		switch name := part.AttributeName; {
		case d.TypeOf(name) != "S":
			return driver.Denied(fmt.Errorf("the key %s of the table %s is no string, as it is for the other clients: name another table",
				driver.Quote(name), l.table.Name))
		case part.KeyType == "RANGE":
			l.sort = name
		default:
			l.key = name
		}
	}
	switch {
	case l.key == "":
		return dynamo.ErrNoDynamoDB
	case l.sort != "" && l.table.SortKey == "":
		return driver.Invalid("SortKey", "not set", "what the other programs write into "+driver.Quote(l.sort)+", the sort key of the table")
	case l.sort == "" && l.table.SortKey != "":
		return driver.Invalid("SortKey", driver.Quote(l.table.SortKey), "nothing: the table has no sort key")
	}
	if err := d.Refusal(l.table.Name); err != nil {
		return err
	}
	return l.checkTimeToLive(ctx)
}

// checkTimeToLive refuses a table whose rows DynamoDB deletes.
//
// Promise 1: the time in a row may be that of an earlier holder, since what other programs keep in it stays. A lock whose row is deleted is
// free for them.
func (l *DynamoLock) checkTimeToLive(ctx context.Context) error {
	ttl, err := l.at.TimeToLive(ctx)
	switch {
	case dynamo.HasCode(err, dynamo.CodeDenied):
		return driver.Denied(fmt.Errorf("the user may not dynamodb:DescribeTimeToLive on the table %s: nobody knows whether DynamoDB deletes "+
			"rows of locks that are held. Allow it", l.table.Name))
	case err != nil:
		return err
	case ttl.On():
		return driver.Denied(fmt.Errorf("the table %s has a time to live, by the attribute %s, so DynamoDB would delete rows of locks that are "+
			"held: turn it off until all programs have moved", l.table.Name, driver.Quote(ttl.AttributeName)))
	}
	return nil
}

// Info implements [migrating.Old].
func (l *DynamoLock) Info() driver.Info {
	return driver.Info{Backend: backend, Expiry: driver.ByObservation, Failover: driver.GrantsSurvive}
}

// Close closes the idle connections. No call is under way.
func (l *DynamoLock) Close() { l.at.Calls.Close() }

// The attributes of a row. A version of the Java client that was never released judged a holder by the clocks of machines, from lookupTime.
const (
	attrOwner    = "ownerName"
	attrLease    = "leaseDuration"
	attrVersion  = "recordVersionNumber"
	attrReleased = "isReleased"
	attrLookup   = "lookupTime"

	released = "1"
)

// row is what the table has of a lock.
type row struct {
	there, released bool
	owner           string
	lease           time.Duration
	mark            mark
}

// mark changes with each renewal.
type mark struct{ version, lease string }

// isOf reports whether a claim holds the lock. The version begins with its proof, and ends with what no other write has.
func (r row) isOf(claim migrating.Claim) bool {
	return !r.released && strings.HasPrefix(r.mark.version, claim.Proof+" ")
}

// ownerPrefix makes an owner that no other program has: some renew by their owner alone (dynamolock's UnsafeMatchOwnerOnly).
const ownerPrefix = "Holdfast: "

// maxOwner is how much of an owner is shown.
const maxOwner = 200

// lease is what a row has as its leaseDuration for a TTL: a part more, since the clocks of those that wait may be faster.
func (t Table) lease(ttl time.Duration) string {
	ttl += ttl / cas.MarginPart
	if t.Client == Java {
		return strconv.FormatInt((ttl + time.Millisecond - 1).Milliseconds(), 10)
	}
	return ttl.String()
}

// maxLease is how long a lease lasts that is longer.
const maxLease = math.MaxInt64 / 4

// parseLease reads a leaseDuration.
func (t Table) parseLease(text string) (lease time.Duration, ok bool) {
	if t.Client == Java {
		ms, err := strconv.ParseInt(text, 10, 64)
		return time.Duration(min(ms, maxLease/int64(time.Millisecond))) * time.Millisecond, err == nil && ms > 0
	}
	lease, err := time.ParseDuration(text)
	return min(lease, maxLease), err == nil && lease > 0
}

// leases says which ones are allowed.
func (t Table) leases() string {
	if t.Client == Java {
		return `milliseconds, as the Java client writes them, such as "20000". Is Table.Client right?`
	}
	return `a time with a unit, as dynamolock writes it, such as "20s". Is Table.Client right?`
}

// rowKey is the key of a lock's row.
func (l *DynamoLock) rowKey(name string) dynamo.Item {
	key := dynamo.Item{l.key: {S: name}}
	if l.sort != "" {
		key[l.sort] = dynamo.Attribute{S: l.table.SortKey}
	}
	return key
}

// read reads the row of a lock.
//
// Promise 1: what is not known to be free, or to be a lease of some length, is neither granted nor replaced.
func (l *DynamoLock) read(ctx context.Context, name string) (r row, err error) {
	ctx, cancel := context.WithTimeout(ctx, dynamo.AskLimit)
	defer cancel()
	found, err := l.at.Get(ctx, l.rowKey(name))
	if err != nil || found == nil {
		return row{}, err
	}
	damaged := func(attribute, value, want string) (row, error) {
		return row{}, driver.Damaged(fmt.Errorf("the row %s of the table %s has %s in %s, want %s", driver.Quote(name), l.table.Name, value,
			attribute, want))
	}
	r = row{there: true, owner: found[attrOwner].S, mark: mark{found[attrVersion].S, found[attrLease].S}}
	lease, ok := l.table.parseLease(r.mark.lease)
	if r.lease = lease; !ok {
		return damaged(attrLease, shown(found, attrLease), l.table.leases())
	}
	if _, there := found[attrOwner]; !there {
		return damaged(attrOwner, shown(found, attrOwner), "a string: the owner")
	}
	if r.mark.version == "" { // its value proves something, and is not shown
		return damaged(attrVersion, "no string", "one that each write changes")
	}
	if _, r.released = found[attrReleased]; r.released && found[attrReleased].S != released {
		return damaged(attrReleased, shown(found, attrReleased), `"1", or no such attribute while the lock is held`)
	}
	return r, nil
}

// shown is the value of an attribute, for people.
func shown(of dynamo.Item, attribute string) string {
	switch a, there := of[attribute]; {
	case !there:
		return "nothing"
	case a.S != "":
		return driver.Quote(a.S)
	case a.N != "":
		return "the number " + a.N
	}
	return "a value that is no string"
}

type updateRequest struct {
	TableName                             string
	Key                                   dynamo.Item
	UpdateExpression, ConditionExpression string
	ExpressionAttributeNames              map[string]string `json:",omitempty"`
	ExpressionAttributeValues             dynamo.Item
}

// write changes a row. done is false if it is no longer the one that was read: then nothing was done.
//
// Promise 1: DynamoDB compares and writes in one step. A version is never written twice, so a request that is late, or comes twice, changes
// nothing once another was done; only if an old program has deleted the row since, it makes it again.
func (l *DynamoLock) write(ctx context.Context, name string, r row, update string, values dynamo.Item) (done bool, err error) {
	u := updateRequest{TableName: l.table.Name, Key: l.rowKey(name), UpdateExpression: update, ExpressionAttributeValues: values}
	if r.there {
		u.ConditionExpression = attrVersion + " = :seen AND "
		values[":seen"] = dynamo.Attribute{S: r.mark.version}
	}
	switch {
	case !r.there:
		u.ConditionExpression = "attribute_not_exists(#k)"
		u.ExpressionAttributeNames = map[string]string{"#k": l.key}
	case r.released:
		u.ConditionExpression += attrReleased + " = :one"
		values[":one"] = dynamo.Attribute{S: released}
	default:
		u.ConditionExpression += "attribute_not_exists(" + attrReleased + ")"
	}
	err = l.at.AskBriefly(ctx, "UpdateItem", u, &struct{}{})
	if dynamo.HasCode(err, dynamo.CodeCondition, dynamo.CodeTransaction) {
		return false, nil
	}
	return err == nil, err
}

// tries is how often a row is written while others write it at the same time.
const tries = 4

var errOvertaken = errors.New("others write the row of the lock all the time")

// lend makes a claim hold the lock for its TTL from now at least, if may allows that for a row which is not the claim's already. Requests
// for one claim can be made at the same time, and twice: what another has written since the first read will do.
func (l *DynamoLock) lend(ctx context.Context, claim migrating.Claim, update string, values dynamo.Item,
	may func(r row, asked time.Duration) error) error {
	lease := l.table.lease(claim.TTL)
	wanted, _ := l.table.parseLease(lease)
	var before row
	for try := range tries {
		asked := l.elapsed()
		r, err := l.read(ctx, claim.Name)
		if err != nil {
			return err
		}
		now := maps.Clone(values)
		now[":lease"], now[":new"] = dynamo.Attribute{S: lease}, dynamo.Attribute{S: claim.Proof + " " + rand.Text()}
		switch longer := r.lease >= wanted; {
		case !r.isOf(claim):
			if err := may(r, asked); err != nil {
				return err
			}
		case longer && try > 0 && r.mark != before.mark:
			return nil
		case longer: // it ends later, also with a shorter TTL now
			now[":lease"] = dynamo.Attribute{S: r.mark.lease}
		}
		done, err := l.write(ctx, claim.Name, r, "SET "+attrLease+" = :lease, "+attrVersion+" = :new"+update, now)
		if done || err != nil {
			return err
		}
		before = r
	}
	return errOvertaken
}

// Acquire implements [migrating.Old]. A request that arrives after the claim was released, because it was late, can leave the lock held by
// nobody until its lease is over.
func (l *DynamoLock) Acquire(ctx context.Context, claim migrating.Claim) error {
	return l.lend(ctx, claim, ", "+attrOwner+" = :owner REMOVE "+attrReleased+", "+attrLookup,
		dynamo.Item{":owner": {S: ownerPrefix + claim.Owner}}, func(r row, asked time.Duration) error {
			if !r.there || r.released || l.isOver(claim.Name, r, asked) {
				return nil
			}
			owner := strings.TrimPrefix(r.owner, ownerPrefix)
			return &driver.HeldError{Record: driver.Record{Name: claim.Name, State: driver.StateHeld,
				Owner: strings.ToValidUTF8(owner[:min(len(owner), maxOwner)], "")}}
		})
}

// isOver reports whether a lease has ended. asked is the elapsed time when the read of the row began.
//
// Promise 2: the holder began its last renewal before the read ended that showed it first. So the lease has ended when its length lies
// between that and the beginning of a read that shows the same one. A pause of this process makes it wait longer, never shorter.
func (l *DynamoLock) isOver(name string, r row, asked time.Duration) bool {
	_, since := l.seen.See(name, r.mark, l.elapsed(), sightings.Always, nil)
	return asked-since > r.lease+r.lease/cas.MarginPart
}

// Renew implements [migrating.Old]. A lease that is over is renewed if nobody else has had the lock since.
func (l *DynamoLock) Renew(ctx context.Context, claim migrating.Claim) error {
	return l.lend(ctx, claim, "", dynamo.Item{}, func(row, time.Duration) error { return driver.ErrLost })
}

// Release implements [migrating.Old].
//
// Promise 1: a late renewal does not take the lock again, since it demands that the row is not released.
// Promise 6: the version is that of this acquisition, so a late release does not touch another's row.
func (l *DynamoLock) Release(ctx context.Context, claim migrating.Claim) error {
	for range tries {
		r, err := l.read(ctx, claim.Name)
		if err != nil || !r.isOf(claim) {
			return err
		}
		done, err := l.write(ctx, claim.Name, r, "SET "+attrReleased+" = :one", dynamo.Item{":one": {S: released}})
		if done || err != nil {
			return err
		}
	}
	return errOvertaken
}

package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/retry"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
)

// Check is a ConditionCheck of a transaction; see [TokenCheck].
type Check struct {
	TableName string
	// Key has one attribute, a string.
	Key map[string]string
	// ConditionExpression has no names that ExpressionAttributeNames would explain.
	ConditionExpression string
	// ExpressionAttributeValues has one value, a number in decimal digits.
	ExpressionAttributeValues map[string]string
}

// TokenCheck is a ConditionCheck for a program's own TransactWriteItems in the same region and account. Once a later holder has been
// granted the lock, the whole transaction of an earlier one is refused, although that has not noticed the end of its lease. prefix is
// that of [WithPrefix], or empty. With AWS's own client:
//
//	c := dynamodb.TokenCheck("locks", "", "billing", hold.Token())
//	check := types.ConditionCheck{TableName: &c.TableName, ConditionExpression: &c.ConditionExpression,
//		Key: map[string]types.AttributeValue{}, ExpressionAttributeValues: map[string]types.AttributeValue{}}
//	for name, text := range c.Key {
//		check.Key[name] = &types.AttributeValueMemberS{Value: text}
//	}
//	for name, digits := range c.ExpressionAttributeValues {
//		check.ExpressionAttributeValues[name] = &types.AttributeValueMemberN{Value: digits}
//	}
//
// A released lock that nobody has taken since still has its last token. DynamoDB also refuses a transaction that meets a renewal, with the
// reason TransactionConflict: do it again. A renewal that meets a transaction is repeated here.
func TokenCheck(table, prefix, name string, token uint64) Check {
	if prefix != "" {
		prefix += "/"
	}
	return Check{
		TableName:                 table,
		Key:                       map[string]string{attrKey: prefix + lockrecord.Key(name)},
		ConditionExpression:       attrToken + " = :token",
		ExpressionAttributeValues: map[string]string{":token": strconv.FormatUint(token, 10)},
	}
}

// guardedSuffix ends the keys of what is written under a guard for certify. No key of package cas has a "/" or begins with a dot.
const guardedSuffix = "/.guarded"

// writeGuarded implements [driver.Description.WriteGuarded], as a program does with [TokenCheck].
func writeGuarded(ctx context.Context, locks driver.Locker, lease driver.Lease, value string) (before string, err error) {
	l, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return "", err
	}
	for range 10 { // others write the value, or renew the lock
		before, err = l.store.writeGuarded(ctx, lease, value)
		if errors.Is(err, errBusy) {
			retry.Wait(ctx, busyPause)
		} else if !errors.Is(err, errOvertaken) {
			break
		}
	}
	return before, driverutil.OpError("guard", backend, lease.Name, err)
}

// errOvertaken says that nothing was written, and that the token was not refused.
var errOvertaken = errors.New("another request was faster")

// errBusy says that nothing was written, because the table has no capacity left for it at present.
var errBusy = errors.New("DynamoDB limits the requests to the table")

// busyPause is how long no request is sent after errBusy.
const busyPause = 100 * time.Millisecond

// writeGuarded replaces the value that it returns.
func (s *store) writeGuarded(ctx context.Context, lease driver.Lease, value string) (before string, err error) {
	key := s.key(lockrecord.Key(lease.Name) + guardedSuffix)
	present, err := s.get(ctx, key)
	if err != nil {
		return "", err
	}
	before = present[attrRecord].S
	key[attrRecord] = attribute{S: value}
	put := s.putIf(key, before)
	check := TokenCheck(s.Name, "", lease.Name, lease.Token)
	type conditionCheck struct {
		TableName                 string
		Key                       item
		ConditionExpression       string
		ExpressionAttributeValues item
	}
	type action struct {
		ConditionCheck *conditionCheck `json:",omitempty"`
		Put            *putRequest     `json:",omitempty"`
	}
	err = s.AskBriefly(ctx, "TransactWriteItems", struct{ TransactItems []action }{[]action{
		{ConditionCheck: &conditionCheck{check.TableName, s.key(check.Key[attrKey]), check.ConditionExpression,
			item{":token": {N: check.ExpressionAttributeValues[":token"]}}}},
		{Put: &put},
	}}, &struct{}{})
	var failed *dynamo.FailedError
	if !errors.As(err, &failed) {
		return before, err
	}
	switch {
	case failed.Code == dynamo.CodeUnknown:
		return "", fmt.Errorf("the server knows no transactions: %w", errors.ErrUnsupported)
	case failed.Code != dynamo.CodeCanceled:
		return "", err
	case slices.Index(failed.Reasons, "ConditionalCheckFailed") == 0:
		return "", fmt.Errorf("%w: a later holder was granted the lock", driver.ErrLost)
	case slices.Contains(failed.Reasons, "ConditionalCheckFailed"), slices.Contains(failed.Reasons, "TransactionConflict"):
		return "", errOvertaken
	case slices.Contains(failed.Reasons, "ThrottlingError"), slices.Contains(failed.Reasons, "ProvisionedThroughputExceeded"):
		return "", fmt.Errorf("%w: %w", errBusy, err)
	}
	return "", err
}

package oldlocks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
)

// attrs is an item with all that is in it.
type attrs map[string]map[string]any

func text(s string) map[string]any { return map[string]any{"S": s} }

func (a attrs) text(name string) string {
	s, _ := a[name]["S"].(string)
	return s
}

// oldClient is a program with dynamolock: its requests are those of client.go and client_heartbeat.go of cirello.io/dynamolock/v5, which
// are the same in the versions 1.4 and 2.2. With java it has the client of amazon-dynamodb-lock-client 1.4, by the file
// AmazonDynamoDBLockClient.java.
type oldClient struct {
	at        *dynamo.Table
	java      bool
	deletes   bool // deleteLockOnRelease
	inPlace   bool // updateExistingLockRecord, of the client in Java
	ownerOnly bool // UnsafeMatchOwnerOnly, of dynamolock
	owner     string
	lease     time.Duration
	now       func() time.Duration

	trying *oldLock // lockTryingToBeAcquired
	held   *oldLock
}

// oldLock is a LockItem.
type oldLock struct {
	name, version string
	lease, lookup time.Duration
}

// isExpired is that of a LockItem.
func (c *oldClient) isExpired(l *oldLock) bool { return c.now()-l.lookup > l.lease }

// holds reports whether the program counts on its lock.
func (c *oldClient) holds() bool { return c.held != nil && !c.isExpired(c.held) }

func (c *oldClient) leaseText() string {
	if c.java {
		return strconv.FormatInt(c.lease.Milliseconds(), 10)
	}
	return c.lease.String()
}

func (c *oldClient) parse(s string) (time.Duration, error) {
	if c.java {
		ms, err := strconv.ParseInt(s, 10, 64)
		return time.Duration(ms) * time.Millisecond, err
	}
	return time.ParseDuration(s)
}

// tryLock is one round of acquireLock: storeLock, or the body of its loop in Java.
func (c *oldClient) tryLock(ctx context.Context, name string) (bool, error) {
	var answer struct{ Item attrs }
	if err := c.at.Ask(ctx, "GetItem", map[string]any{"TableName": c.at.Name, "Key": attrs{"key": text(name)}, "ConsistentRead": true},
		&answer); err != nil {
		return false, err
	}
	existing, item := answer.Item, attrs{}
	_, isReleased := existing["isReleased"]
	seen := &oldLock{name: name, version: existing.text("recordVersionNumber"), lookup: c.now()}
	if existing != nil {
		var err error
		if seen.lease, err = c.parse(existing.text("leaseDuration")); err != nil {
			return false, fmt.Errorf("cannot parse lease duration: %w", err)
		}
	}
	if !c.java { // it keeps the additional attributes
		maps.Copy(item, existing)
		delete(item, "isReleased")
	} else if data := existing["data"]; data != nil {
		item["data"] = data
	}
	maps.Copy(item, attrs{"key": text(name), "ownerName": text(c.owner), "leaseDuration": text(c.leaseText()),
		"recordVersionNumber": text(rand.Text())})
	switch {
	case existing == nil && c.java:
		return c.store(ctx, item, "attribute_not_exists(#k)", attrs{})
	case isReleased && c.java:
		return c.store(ctx, item, "attribute_exists(#k) AND isReleased = :ir", attrs{":ir": text("1")})
	case existing == nil || isReleased:
		return c.store(ctx, item, "attribute_not_exists(#k) OR (attribute_exists(#k) AND isReleased = :ir)", attrs{":ir": text("1")})
	case c.trying == nil || c.trying.name != name || c.trying.version != seen.version:
		c.trying = seen
	case c.isExpired(c.trying):
		return c.store(ctx, item, "attribute_exists(#k) AND recordVersionNumber = :rvn", attrs{":rvn": text(seen.version)})
	}
	return false, nil
}

// store is putLockItemAndStartSessionMonitor, or updateItemAndStartSessionMonitor.
func (c *oldClient) store(ctx context.Context, item attrs, condition string, values attrs) (bool, error) {
	began := c.now()
	request := map[string]any{"TableName": c.at.Name, "ConditionExpression": condition,
		"ExpressionAttributeNames": map[string]string{"#k": "key"}}
	action := "PutItem"
	if request["Item"] = item; c.inPlace {
		action = "UpdateItem"
		delete(request, "Item")
		request["Key"] = attrs{"key": item["key"]}
		var sets []string
		for name, value := range item {
			if name != "key" {
				sets = append(sets, name+" = :"+name)
				values[":"+name] = value
			}
		}
		request["UpdateExpression"] = "SET " + strings.Join(sets, ", ") + " REMOVE isReleased"
	}
	if len(values) > 0 {
		request["ExpressionAttributeValues"] = values
	}
	err := c.at.Ask(ctx, action, request, &struct{}{})
	if dynamo.HasCode(err, dynamo.CodeCondition) {
		return false, nil
	}
	if err == nil {
		c.trying, c.held = nil, &oldLock{item.text("key"), item.text("recordVersionNumber"), c.lease, began}
	}
	return err == nil, err
}

// owned makes a request about the lock that is held: with it and the owner as they were written.
func (c *oldClient) owned(ctx context.Context, action, update string, values attrs) error {
	values[":on"] = text(c.owner)
	request := map[string]any{"TableName": c.at.Name, "Key": attrs{"key": text(c.held.name)},
		"ExpressionAttributeNames": map[string]string{"#k": "key"}, "ExpressionAttributeValues": values}
	if request["ConditionExpression"] = "attribute_exists(#k) AND ownerName = :on"; !c.ownerOnly || values[":new"] == nil {
		request["ConditionExpression"] = "attribute_exists(#k) AND recordVersionNumber = :rvn AND ownerName = :on"
		values[":rvn"] = text(c.held.version)
	}
	if update != "" {
		request["UpdateExpression"] = update
	}
	return c.at.Ask(ctx, action, request, &struct{}{})
}

// heartbeat is sendHeartbeat.
func (c *oldClient) heartbeat(ctx context.Context) error {
	if !c.holds() {
		return errors.New("cannot send heartbeat because lock is not granted")
	}
	began, version := c.now(), rand.Text()
	err := c.owned(ctx, "UpdateItem", "SET leaseDuration = :ld, recordVersionNumber = :new", attrs{":ld": text(c.leaseText()),
		":new": text(version)})
	switch {
	case err == nil:
		c.held.version, c.held.lookup, c.held.lease = version, began, c.lease
	case dynamo.HasCode(err, dynamo.CodeCondition):
		c.held = nil
	}
	return err
}

// release is releaseLock. The lock is none afterwards, also if it fails.
func (c *oldClient) release(ctx context.Context) (err error) {
	if c.deletes {
		err = c.owned(ctx, "DeleteItem", "", attrs{})
	} else {
		err = c.owned(ctx, "UpdateItem", "SET isReleased = :ir", attrs{":ir": text("1")})
	}
	c.held = nil
	return err
}

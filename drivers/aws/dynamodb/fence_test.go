package dynamodb

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

// A transaction with the check is done as long as no later holder has been granted the lock: also after renewals, after the release, and
// while the record of the lock is written.
func TestTokenCheck(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "team/a"} {
		server := dynamodbtest.Start(t)
		l := open(t, configFor(server.Endpoint()), WithPrefix(prefix))
		name := "Job 1"
		first := acquire(t, l, name, "a")
		written := func(lease driver.Lease, value, want string) {
			t.Helper()
			if before, err := writeGuarded(t.Context(), l, lease, value); err != nil || before != want {
				t.Errorf("prefix %q: %q, %v, want %q", prefix, before, err, want)
			}
		}
		written(first, "1", "")
		first, err := l.Renew(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		written(first, "2", "1")
		if err := l.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		written(first, "3", "2")
		second := acquire(t, l, name, "b")
		for range 2 {
			if _, err := writeGuarded(t.Context(), l, first, "late"); !errors.Is(err, driver.ErrLost) {
				t.Errorf("prefix %q: a late write: %v", prefix, err)
			}
			written(second, "4", map[bool]string{true: "4", false: "3"}[*server.Item(l.store.prefix + "%4aob%201/.guarded")[attrRecord].S == "4"])
		}
		c := TokenCheck(dynamodbtest.Table, prefix, name, second.Token)
		i := server.Item(c.Key["name"])
		if i == nil || c.ConditionExpression != "fencingToken = :token" || *i["fencingToken"].N != c.ExpressionAttributeValues[":token"] {
			t.Errorf("%+v does not fit %v", c, i)
		}
	}
}

// A transaction that meets a renewal, or another writer, is tried again. What a person must mend is not.
func TestGuardIsTriedAgain(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	l := open(t, configFor(server.Endpoint()))
	lease := acquire(t, l, "n", "a")
	refusals := []string{`{"Code":"TransactionConflict"},{"Code":"None"}`, `{"Code":"None"},{"Code":"ConditionalCheckFailed"}`}
	server.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
		if r.Action != "TransactWriteItems" || len(refusals) == 0 {
			return dynamodbtest.Fault{}
		}
		now := refusals[0]
		refusals = refusals[1:]
		return dynamodbtest.Fault{Status: 400, Message: `{"__type":"x#TransactionCanceledException","CancellationReasons":[` + now + `]}`}
	})
	if _, err := writeGuarded(t.Context(), l, lease, "1"); err != nil || server.Requests("TransactWriteItems") != 3 {
		t.Errorf("%v after %d requests", err, server.Requests("TransactWriteItems"))
	}
	server.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
		if r.Action != "TransactWriteItems" {
			return dynamodbtest.Fault{}
		}
		return dynamodbtest.Fault{Status: 400, Message: `{"__type":"x#TransactionCanceledException","message":"too much","CancellationReasons":` +
			`[{"Code":"None"},{"Code":"ThrottlingError"}]}`}
	})
	if _, err := writeGuarded(t.Context(), l, lease, "1"); err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrDenied) {
		t.Errorf("throttled: %v", err)
	}
	throttled := 2
	server.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
		if r.Action != "TransactWriteItems" || throttled == 0 {
			return dynamodbtest.Fault{}
		}
		throttled--
		return dynamodbtest.Fault{Status: 400, Message: `{"__type":"x#TransactionCanceledException","CancellationReasons":` +
			`[{"Code":"None"},{"Code":"ProvisionedThroughputExceeded"}]}`}
	})
	if _, err := writeGuarded(t.Context(), l, lease, "2"); err != nil {
		t.Errorf("throttled for a time: %v", err)
	}
	server.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
		if r.Action != "TransactWriteItems" {
			return dynamodbtest.Fault{}
		}
		return dynamodbtest.Fault{Status: 400, Code: dynamo.CodeUnknown}
	})
	if _, err := writeGuarded(t.Context(), l, lease, "1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without transactions: %v", err)
	}
	server.SetFaults(nil)
	server.Deny("TransactWriteItems")
	if _, err := writeGuarded(t.Context(), l, lease, "1"); !errors.Is(err, driver.ErrDenied) ||
		!strings.Contains(err.Error(), "may not dynamodb:TransactWriteItems") {
		t.Errorf("denied: %v", err)
	}
}

// Of writers at the same time, each replaces the value that it returns: no value is replaced twice.
func TestGuardedWritersAtOnce(t *testing.T) {
	t.Parallel()
	l := open(t, configFor(dynamodbtest.Start(t).Endpoint()))
	lease := acquire(t, l, "n", "a")
	var mu sync.Mutex
	replaced := map[string]int{}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				before, err := writeGuarded(t.Context(), l, lease, fmt.Sprintf("%d-%d", w, i))
				switch {
				case errors.Is(err, errOvertaken): // too often
				case err != nil:
					t.Error(err)
				default:
					mu.Lock()
					replaced[before]++
					mu.Unlock()
				}
			}
		})
	}
	writers.Wait()
	for value, times := range replaced {
		if times != 1 {
			t.Errorf("%q was replaced %d times", value, times)
		}
	}
	if len(replaced) < 25 {
		t.Errorf("only %d writes were done", len(replaced))
	}
}

package dynamodb

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// table is what DynamoDB says of a table.
type table struct {
	TableStatus string
	KeySchema   []struct {
		AttributeName string
		KeyType       string
	}
	AttributeDefinitions []struct {
		AttributeName string
		AttributeType string
	}
	Replicas           []struct{ RegionName string }
	GlobalTableVersion string
	BillingModeSummary struct{ BillingMode string }
	// Of a table that is paid for by its capacity.
	ProvisionedThroughput struct{ ReadCapacityUnits, WriteCapacityUnits int }
}

type named struct{ TableName string }

// describe reads what DynamoDB says of the table.
func (s *store) describe(ctx context.Context) (t table, err error) {
	var answer struct{ Table table }
	err = s.askBriefly(ctx, "DescribeTable", named{s.table}, &answer)
	return answer.Table, err
}

// Statuses of a table that is not there yet, and of those that can be used.
var (
	making = "CREATING"
	usable = map[string]bool{"ACTIVE": true, "UPDATING": true}
)

// refusal returns why locks cannot be kept in a table, or nil.
//
// Promise 1: of two writes in two regions of a global table both are done, and the last one stays.
func (t *table) refusal(name string) error {
	switch {
	case len(t.KeySchema) != 1 || t.KeySchema[0].AttributeName != attrKey || t.keyType() != "S":
		return driver.Denied(fmt.Errorf("the table %s has another key, so it is not one for locks: it must have the partition key %s, "+
			"a string, and no sort key. Name another table", name, driver.Quote(attrKey)))
	case len(t.Replicas) > 0 || t.GlobalTableVersion != "":
		return driver.Denied(fmt.Errorf("the table %s is a global table (%s), in which the last of two writes wins, so two clients could hold "+
			"one lock: name a table of one region", name, t.regions()))
	case !usable[t.TableStatus]:
		return driver.Denied(fmt.Errorf("the table %s is %s", name, driver.Quote(t.TableStatus)))
	}
	return nil
}

// keyType is the type of the key.
func (t *table) keyType() string {
	for _, a := range t.AttributeDefinitions {
		if a.AttributeName == attrKey {
			return a.AttributeType
		}
	}
	return ""
}

// regions are the other regions of a global table, for people.
func (t *table) regions() string {
	var names []string
	for _, r := range t.Replicas {
		names = append(names, r.RegionName)
	}
	if len(names) == 0 {
		return "of version " + t.GlobalTableVersion
	}
	return "with replicas in " + strings.Join(names, ", ")
}

// createCommand is what makes the table by hand.
func (s *store) createCommand() string {
	return fmt.Sprintf("aws dynamodb create-table --table-name %s --region %s --billing-mode PAY_PER_REQUEST "+
		"--attribute-definitions AttributeName=%[3]s,AttributeType=S --key-schema AttributeName=%[3]s,KeyType=HASH", s.table, s.region, attrKey)
}

const (
	// makeLimit is how long a table may take to be made. DynamoDB needs some seconds.
	makeLimit = time.Minute
	makePause = 300 * time.Millisecond
)

// prepare checks the table, and makes it if there is none.
//
// Promise 1: nobody uses a table that may be a global one, and no two machines make one each.
func (s *store) prepare(ctx context.Context, c settings) error {
	ctx, cancel := context.WithTimeout(ctx, makeLimit)
	defer cancel()
	made := false
	for {
		t, err := s.describe(ctx)
		switch {
		case hasCode(err, codeDenied):
			return driver.Denied(fmt.Errorf("the user may not dynamodb:DescribeTable on the table %s: nobody knows whether it is a global table, "+
				"in which the last of two writes wins. Allow it", s.table))
		case hasCode(err, codeNoTable) && c.elsewhere:
			return driver.Denied(fmt.Errorf("the table %s does not exist in %s, the region of this machine's configuration. Open makes it only if "+
				"the URL names the region, since other machines may have another one: add region=%[2]s, or run: %s", s.table, s.region,
				s.createCommand()))
		case hasCode(err, codeNoTable) && !made:
			if made, err = true, s.create(ctx); err != nil && !hasCode(err, codeInUse) { // another process makes it
				return err
			}
			if err == nil {
				c.logger.Info("holdfast: there was no table for locks, it was made", "backend", backend, "table", s.table, "region", s.region)
			}
		case hasCode(err, codeNoTable): // DescribeTable is eventually consistent
		case err != nil:
			return err
		case t.TableStatus != making:
			return t.refusal(s.table)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the table %s is still being made: %w", s.table, ctx.Err())
		case <-time.After(makePause):
		}
	}
}

// create makes the table.
func (s *store) create(ctx context.Context) error {
	type definition struct{ AttributeName, AttributeType string }
	type element struct{ AttributeName, KeyType string }
	err := s.askBriefly(ctx, "CreateTable", struct {
		TableName, BillingMode string
		AttributeDefinitions   []definition
		KeySchema              []element
	}{s.table, "PAY_PER_REQUEST", []definition{{attrKey, "S"}}, []element{{attrKey, "HASH"}}}, &struct{}{})
	if hasCode(err, codeDenied) {
		return driver.Denied(fmt.Errorf("the table %s does not exist in %s, and this user may not make it (dynamodb:CreateTable): run: %s",
			s.table, s.region, s.createCommand()))
	}
	return err
}

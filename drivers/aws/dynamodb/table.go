package dynamodb

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
)

// making is the status of a table that is not there yet.
const making = "CREATING"

// refusal returns why locks cannot be kept in a table, or nil.
func refusal(t *dynamo.Description, name string) error {
	if len(t.KeySchema) != 1 || t.KeySchema[0].AttributeName != attrKey || t.TypeOf(attrKey) != "S" {
		return driver.Denied(fmt.Errorf("the table %s has another key, so it is not one for locks: it must have the partition key %s, "+
			"a string, and no sort key. Name another table", name, driver.Quote(attrKey)))
	}
	return t.Refusal(name)
}

// createCommand is what makes the table by hand.
func (s *store) createCommand() string {
	return fmt.Sprintf("aws dynamodb create-table --table-name %s --region %s --billing-mode PAY_PER_REQUEST "+
		"--attribute-definitions AttributeName=%[3]s,AttributeType=S --key-schema AttributeName=%[3]s,KeyType=HASH", s.Name, s.Region, attrKey)
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
		t, err := s.Describe(ctx)
		switch {
		case dynamo.HasCode(err, dynamo.CodeDenied):
			return driver.Denied(fmt.Errorf("the user may not dynamodb:DescribeTable on the table %s: nobody knows whether it is a global table, "+
				"in which the last of two writes wins. Allow it", s.Name))
		case dynamo.HasCode(err, dynamo.CodeNoTable) && c.elsewhere:
			return driver.Denied(fmt.Errorf("the table %s does not exist in %s, the region of this machine's configuration. Open makes it only if "+
				"the URL names the region or an endpoint, since other machines may have another one: add region=%[2]s, or run: %s", s.Name, s.Region,
				s.createCommand()))
		case dynamo.HasCode(err, dynamo.CodeNoTable) && !made:
			if made, err = true, s.create(ctx); err != nil && !dynamo.HasCode(err, dynamo.CodeInUse) { // another process makes it
				return err
			}
			if err == nil {
				c.logger.Info("holdfast: there was no table for locks, it was made", "backend", backend, "table", s.Name, "region", s.Region)
			}
		case dynamo.HasCode(err, dynamo.CodeNoTable): // DescribeTable is eventually consistent
		case err != nil:
			return err
		case t.TableStatus != making:
			return refusal(&t, s.Name)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the table %s is still being made: %w", s.Name, ctx.Err())
		case <-time.After(makePause):
		}
	}
}

// create makes the table.
func (s *store) create(ctx context.Context) error {
	type definition struct{ AttributeName, AttributeType string }
	type element struct{ AttributeName, KeyType string }
	err := s.AskBriefly(ctx, "CreateTable", struct {
		TableName, BillingMode string
		AttributeDefinitions   []definition
		KeySchema              []element
	}{s.Name, "PAY_PER_REQUEST", []definition{{attrKey, "S"}}, []element{{attrKey, "HASH"}}}, &struct{}{})
	if dynamo.HasCode(err, dynamo.CodeDenied) {
		return driver.Denied(fmt.Errorf("the table %s does not exist in %s, and this user may not make it (dynamodb:CreateTable): run: %s",
			s.Name, s.Region, s.createCommand()))
	}
	return err
}

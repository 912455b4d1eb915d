package dynamodb

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
)

// What Check examines, in addition to package cas.
const (
	subjectTable    = "table"
	subjectRights   = "rights"
	subjectCapacity = "capacity"
	subjectTTL      = "time to live"
	subjectClocks   = "clocks"
)

// doctorKey is the key of no item: no lock has it, and nothing is written there.
const doctorKey = "~doctor"

// Check implements [driver.Checker].
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	e := &examination{Report: report, store: l.store}
	return driverutil.CheckSteps(ctx, backend, nil, e.checkTable, e.checkRights, e.checkCapacity, e.checkTTL,
		e.checkClocks, func(ctx context.Context) bool { return l.Locker.Check(ctx, report) == nil })
}

// CheckWrites is for [driver.CheckWrites]. Before there is a table nothing can be written.
func (l *Locker) CheckWrites(ctx context.Context, report func(driver.Finding)) error {
	if missing, err := l.MissingStore(ctx); err != nil || missing != "" {
		return err
	}
	return l.Locker.CheckWrites(ctx, report)
}

// examination has the facts about a table.
type examination struct {
	driverutil.Report
	store *store
	table *dynamo.Description // nil if the user may not see it
}

// checkTable reports whether AWS answers, the credential is accepted, and the table can be used.
func (e *examination) checkTable(ctx context.Context) (goOn bool) {
	s := e.store
	t, err := s.Describe(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case dynamo.HasCode(err, dynamo.CodeDenied):
		e.Wrong(subjectTable, "Allow dynamodb:DescribeTable.", "", "the user may not dynamodb:DescribeTable, so no program takes a lock in %s: "+
			"it may be a global table, and then two regions could hold one lock", s.Name)
		return true
	case dynamo.HasCode(err, dynamo.CodeNoTable):
		e.Unchecked(subjectTable, "The first program that opens the locks makes it, if its URL names the region or an endpoint and it may "+
			"dynamodb:CreateTable. To make it by hand, run: "+
			s.createCommand(), "%s does not exist yet in %s", s.Name, s.Region)
		return false
	case err != nil:
		e.Wrong(subjectTable, "Correct what the message names. Make sure that the region or the endpoint is right and reachable, and that "+
			"AWS's SDK finds credentials.", "", "%v", driver.ErrorText(err))
		return false
	}
	e.table = &t
	if err := refusal(&t, s.Name); err != nil {
		e.Wrong(subjectTable, "Name another table, or make one.", s.createCommand(), "%v", driver.ErrorText(err))
		return false
	}
	e.Of("a table of one region").OK(subjectTable, "%s answers, and is one for locks", s.Name)
	return true
}

// checkRights reports the actions that are missing. It writes nothing: the write demands a record of an item that does not exist.
func (e *examination) checkRights(ctx context.Context) (goOn bool) {
	s := e.store
	key := s.key(doctorKey)
	written := s.key(doctorKey)
	written[attrRecord] = attribute{S: "{}"}
	var missing []string
	for _, c := range []struct {
		action string
		in     any
	}{
		{"GetItem", dynamo.GetRequest{TableName: s.Name, Key: key, ConsistentRead: true}},
		{"BatchGetItem", struct{ RequestItems map[string]batch }{map[string]batch{s.Name: {[]item{key}, true}}}},
		{"Scan", scanRequest{TableName: s.Name, Limit: 1}},
		{"PutItem", s.putIf(written, "no such record")},
	} {
		switch err := s.AskBriefly(ctx, c.action, c.in, &struct{}{}); {
		case ctx.Err() != nil:
			return false
		case dynamo.HasCode(err, dynamo.CodeDenied):
			missing = append(missing, "dynamodb:"+c.action)
		case err != nil && !dynamo.HasCode(err, dynamo.CodeCondition):
			e.Unchecked(subjectRights, "Check again.", "AWS does not say whether dynamodb:%s is allowed: %v", c.action, driver.ErrorText(err))
			return true
		}
	}
	if len(missing) > 0 {
		e.Wrong(subjectRights, "Allow them by a policy of the user or the role; docs/dynamodb.md has one.", "", "the user may not %s on %s",
			strings.Join(missing, ", "), s.Name)
		return false
	}
	e.OK(subjectRights, "the user may read, write and scan %s", s.Name)
	return true
}

// fewUnits is below what capacity a table is easily throttled: a write for each of ten locks, and some waiters.
const fewUnits = 5

// checkCapacity reports how requests are paid for.
func (e *examination) checkCapacity(context.Context) bool {
	if e.table == nil {
		return true
	}
	switch c := e.table.ProvisionedThroughput; {
	case e.table.BillingModeSummary.BillingMode == "PAY_PER_REQUEST":
		e.OK(subjectCapacity, "each request is paid for, and none waits for capacity")
	case c.WriteCapacityUnits < fewUnits || c.ReadCapacityUnits < fewUnits:
		e.Doubtful(subjectCapacity, "Use on-demand capacity, with the command aws dynamodb update-table --table-name "+e.store.Name+
			" --billing-mode PAY_PER_REQUEST.", "the table has %d units for writes and %d for reads a second: when they are used up, renewals "+
			"fail, and holders lose their locks", c.WriteCapacityUnits, c.ReadCapacityUnits)
	default:
		e.OK(subjectCapacity, "%d units for writes and %d for reads a second: a renewal takes one", c.WriteCapacityUnits, c.ReadCapacityUnits)
	}
	return true
}

// checkTTL reports whether DynamoDB deletes items after some time.
func (e *examination) checkTTL(ctx context.Context) bool {
	ttl, err := e.store.TimeToLive(ctx)
	attribute := ttl.AttributeName
	switch {
	case ctx.Err() != nil:
		return false
	case dynamo.HasCode(err, dynamo.CodeDenied):
		e.Unchecked(subjectTTL, "Make sure that DynamoDB deletes no locks.", "the user may not dynamodb:DescribeTimeToLive")
	case err != nil:
		e.Unchecked(subjectTTL, "Make sure that DynamoDB deletes no locks.", "%v", driver.ErrorText(err))
	case attribute == "":
		e.OK(subjectTTL, "the table has none")
	case attribute == attrToken || attribute == attrRecord || attribute == attrKey:
		e.Doubtful(subjectTTL, "Disable it.", "that of the table is by the attribute %s of the locks (%s): DynamoDB may delete them",
			driver.Quote(attribute), ttl.Status)
	default:
		e.OK(subjectTTL, "that of the table is by the attribute %s, which no lock has", driver.Quote(attribute))
	}
	return true
}

// checkClocks reports how far this machine's clock is from that of the answers.
func (e *examination) checkClocks(context.Context) bool {
	switch skew, known := e.store.Calls.Clocks.Skew(time.Now()); {
	case !known:
		e.Unchecked(subjectClocks, "Look for what removes the header Date from answers.", "no answer said what time it is")
	case skew.Abs() > dynamo.MaxSkew:
		e.Doubtful(subjectClocks, "Synchronize this machine's clock by NTP.", "this machine's is %s from AWS's: leases do not depend on it, "+
			"but AWS refuses all requests when it is 5 minutes", driver.FormatDuration(skew.Abs().Round(time.Second)))
	default:
		e.OK(subjectClocks, "this machine's agrees with AWS's")
	}
	return true
}

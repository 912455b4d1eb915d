// Package dynamo makes requests about a table of DynamoDB, and explains their errors: for the driver, and for the locks of other programs.
package dynamo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

// Attribute is a value of an item: a text, or a number in digits. One of another type has neither.
type Attribute struct {
	S string `json:"S,omitempty"`
	N string `json:"N,omitempty"`
}

// Item is an item, or its key.
type Item map[string]Attribute

// Table is where requests go. Its methods are safe for concurrent use.
type Table struct {
	Calls        *request.Client
	URL          string // of the service
	Name, Region string
	// Rights are what locks need on the table, and Missing says what to do if there is none. Both are for errors.
	Rights, Missing string

	host string // of AWS, or empty
}

var tableName = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)

// CheckName checks the name of a table.
func CheckName(field, name string) error {
	if !tableName.MatchString(name) {
		return driver.Invalid(field, driver.QuoteName(name), "3 to 255 letters, digits and any of -_.: the name of a table, not its ARN")
	}
	return nil
}

// New finds out where a table is. It makes no request. endpoint is that of a URL, or empty for that of the configuration. sent, if not nil,
// is called for each request.
func New(ctx context.Context, config aws.Config, name, endpoint string, sent func()) (*Table, error) {
	t := &Table{Name: name, Region: config.Region}
	field := "URL parameter " + request.ParamEndpoint
	if endpoint == "" {
		field, endpoint = "endpoint of the configuration", request.Endpoint(ctx, config, "DynamoDB")
	}
	if t.Region == "" {
		return nil, driver.Invalid("region", "not set", "that of the table: name it in the URL parameter "+request.ParamRegion+
			", or in AWS_REGION")
	}
	if err := request.CheckRegion("region", t.Region); err != nil {
		return nil, err
	}
	if endpoint == "" {
		t.host = "dynamodb." + t.Region + "." + request.Suffix(t.Region)
		endpoint = "https://" + t.host
	}
	at, err := request.ParseEndpoint(field, endpoint)
	if err != nil {
		return nil, err
	}
	t.URL = at.String()
	t.Calls, err = request.New(config, "dynamodb", t.Region, httpstore.NewClocks(nil), sent)
	return t, err
}

// Ask makes a request, and reads its answer.
func (t *Table) Ask(ctx context.Context, action string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	answer, err := t.send(ctx, httpstore.Request{Method: http.MethodPost, URL: t.URL + "/", Body: body, Header: http.Header{
		"Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Target": {"DynamoDB_20120810." + action}}})
	switch {
	case err != nil:
		return err
	case !answer.Done():
		return t.refused(action, answer)
	case json.Unmarshal(answer.Body, out) != nil:
		return ErrNoDynamoDB
	}
	return nil
}

// AskLimit is the time limit of each request that nothing else limits.
const AskLimit = 5 * time.Second

// AskBriefly is Ask with [AskLimit].
func (t *Table) AskBriefly(ctx context.Context, action string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, AskLimit)
	defer cancel()
	return t.Ask(ctx, action, in, out)
}

// GetRequest is that of GetItem.
type GetRequest struct {
	TableName      string
	Key            Item
	ConsistentRead bool
}

// Get reads an item, or returns nil. In a global table of the version of 2017, of which a table's description says nothing, DynamoDB adds
// attributes to each item.
//
// Promise 1: the read is strongly consistent.
func (t *Table) Get(ctx context.Context, key Item) (Item, error) {
	var answer struct{ Item Item }
	err := t.Ask(ctx, "GetItem", GetRequest{t.Name, key, true}, &answer)
	for name := range answer.Item {
		if strings.HasPrefix(name, "aws:rep:") {
			return nil, driver.Denied(fmt.Errorf("the table %s is a global table, of the version of 2017, in which the last of two writes wins: "+
				"name a table of one region", t.Name))
		}
	}
	return answer.Item, err
}

// Description is what DynamoDB says of a table.
type Description struct {
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

// Describe reads what DynamoDB says of the table.
func (t *Table) Describe(ctx context.Context) (d Description, err error) {
	var answer struct{ Table Description }
	err = t.AskBriefly(ctx, "DescribeTable", struct{ TableName string }{t.Name}, &answer)
	return answer.Table, err
}

// TimeToLive says by which attribute DynamoDB deletes items.
type TimeToLive struct {
	Status        string `json:"TimeToLiveStatus"`
	AttributeName string
}

// On reports whether items are deleted, or are soon, or perhaps still: DynamoDB takes up to an hour to turn that off.
func (t TimeToLive) On() bool { return t.Status != "" && t.Status != "DISABLED" }

// TimeToLive reads whether DynamoDB deletes items of the table.
func (t *Table) TimeToLive(ctx context.Context) (TimeToLive, error) {
	var answer struct{ TimeToLiveDescription TimeToLive }
	err := t.AskBriefly(ctx, "DescribeTimeToLive", struct{ TableName string }{t.Name}, &answer)
	return answer.TimeToLiveDescription, err
}

// Statuses of a table that can be used.
var usable = map[string]bool{"ACTIVE": true, "UPDATING": true}

// Refusal returns why locks cannot be kept in a table, or nil. It does not know which key the table must have.
//
// Promise 1: of two writes in two regions of a global table both are done, and the last one stays.
func (d *Description) Refusal(name string) error {
	switch {
	case len(d.Replicas) > 0 || d.GlobalTableVersion != "":
		return driver.Denied(fmt.Errorf("the table %s is a global table (%s), in which the last of two writes wins, so two clients could hold "+
			"one lock: name a table of one region", name, d.regions()))
	case !usable[d.TableStatus]:
		return driver.Denied(fmt.Errorf("the table %s is %s", name, driver.Quote(d.TableStatus)))
	}
	return nil
}

// TypeOf is the type of an attribute of the key.
func (d *Description) TypeOf(attribute string) string {
	for _, a := range d.AttributeDefinitions {
		if a.AttributeName == attribute {
			return a.AttributeType
		}
	}
	return ""
}

// regions are the other regions of a global table, for people.
func (d *Description) regions() string {
	var names []string
	for _, r := range d.Replicas {
		names = append(names, r.RegionName)
	}
	if len(names) == 0 {
		return "of version " + d.GlobalTableVersion
	}
	return "with replicas in " + strings.Join(names, ", ")
}

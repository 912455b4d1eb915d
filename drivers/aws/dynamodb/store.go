package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

// The attributes of an item. DynamoDB reserves the first word in expressions.
const (
	attrKey    = "name"
	attrRecord = "record"
	attrToken  = "fencingToken"
)

// attribute is a value of an item: a text, or a number in digits. One of another type has neither.
type attribute struct {
	S string `json:"S,omitempty"`
	N string `json:"N,omitempty"`
}

type item map[string]attribute

// store is a [cas.Store] of the items of a table whose keys begin with a prefix.
type store struct {
	calls     *request.Client
	at        string // the URL of the service
	table     string
	region    string
	host      string // of AWS, or empty
	prefix    string // empty, or with a slash at its end
	onlyReads bool
}

// key is the key of the item for one of package cas. That has no "/".
func (s *store) key(key string) item { return item{attrKey: {S: s.prefix + key}} }

// ask makes a request, and reads its answer.
func (s *store) ask(ctx context.Context, action string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodPost, URL: s.at + "/", Body: body, Header: http.Header{
		"Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Target": {"DynamoDB_20120810." + action}}})
	switch {
	case err != nil:
		return err
	case !answer.Done():
		return s.refused(action, answer)
	case json.Unmarshal(answer.Body, out) != nil:
		return errNoDynamoDB
	}
	return nil
}

// valueOf is the value that an item has. Its version is the record itself, since no two that a Locker writes are equal.
func valueOf(i item) cas.Value {
	if i == nil {
		return cas.Value{}
	}
	record := i[attrRecord].S // without one it counts as damaged
	return cas.Value{Data: []byte(record), Version: versionOf(record)}
}

// versionOf is never empty, and that of no record has no write.
func versionOf(record string) string { return "=" + record }

type getRequest struct {
	TableName      string
	Key            item
	ConsistentRead bool
}

// Get implements [cas.Store].
//
// Promise 1: the read is strongly consistent.
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	found, err := s.get(ctx, s.key(key))
	return valueOf(found), err
}

// get reads an item, or returns nil. In a global table of the version of 2017, of which a table's description says nothing, DynamoDB adds
// attributes to each item, also to that which every Open writes.
func (s *store) get(ctx context.Context, key item) (item, error) {
	var answer struct{ Item item }
	err := s.ask(ctx, "GetItem", getRequest{s.table, key, true}, &answer)
	for name := range answer.Item {
		if strings.HasPrefix(name, "aws:rep:") {
			return nil, driver.Denied(fmt.Errorf("the table %s is a global table, of the version of 2017, in which the last of two writes wins: "+
				"name a table of one region", s.table))
		}
	}
	return answer.Item, s.unlessMissing(err)
}

// unlessMissing ignores that there is no table, for a Locker that only reads: all locks are free then.
func (s *store) unlessMissing(err error) error {
	if s.onlyReads && hasCode(err, codeNoTable) {
		return nil
	}
	return err
}

type putRequest struct {
	TableName                           string
	Item                                item
	ConditionExpression                 string
	ExpressionAttributeNames            map[string]string
	ExpressionAttributeValues           item   `json:",omitempty"`
	ReturnValuesOnConditionCheckFailure string `json:",omitempty"`
}

// putIf is a write of an item whose record must be the one before, or, if that is empty, that must not exist.
func (s *store) putIf(i item, before string) putRequest {
	p := putRequest{TableName: s.table, Item: i}
	if before == "" {
		p.ConditionExpression, p.ExpressionAttributeNames = "attribute_not_exists(#k)", map[string]string{"#k": attrKey}
	} else {
		p.ConditionExpression, p.ExpressionAttributeNames = "#r = :before", map[string]string{"#r": attrRecord}
		p.ExpressionAttributeValues = item{":before": {S: before}}
	}
	return p
}

// Put implements [cas.Store]. A refusal brings the present item.
//
// Promise 1: DynamoDB compares and writes in one step.
func (s *store) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	before, ok := strings.CutPrefix(version, "=")
	if version != "" && (!ok || before == "") {
		return cas.Written{}, cas.ErrConflict // of no record
	}
	i := s.key(key)
	i[attrRecord] = attribute{S: string(data)}
	if present, ok := cas.ReadPresent(data); ok && present.Token > 0 {
		i[attrToken] = attribute{N: strconv.FormatUint(present.Token, 10)}
	}
	p := s.putIf(i, before)
	p.ReturnValuesOnConditionCheckFailure = "ALL_OLD"
	var failed *failedError
	switch err := s.ask(ctx, "PutItem", p, &struct{}{}); {
	case err == nil:
		return cas.Written{Version: versionOf(string(data))}, nil
	case hasCode(err, codeTransaction): // one of the program's own is under way: nothing was done, and it is over soon
		return cas.Written{}, cas.ErrConflict
	case !errors.As(err, &failed) || failed.code != codeCondition:
		return cas.Written{}, err
	case failed.present == nil:
		return cas.Written{}, cas.ErrConflict
	default:
		return cas.Written{}, &cas.RefusedError{Present: valueOf(failed.present)}
	}
}

// maxKeys is how many keys a batch has. DynamoDB takes 100, of which the longest records would make an answer of 20 MB.
const maxKeys = 40

type batch struct {
	Keys           []item
	ConsistentRead bool
}

// GetBatch implements [cas.BatchGetter]. DynamoDB leaves keys out when there is too much to read at a time.
func (s *store) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	values, at := make([]cas.Value, len(keys)), make(map[string]int, len(keys))
	var left []item
	for i, key := range keys {
		k := s.key(key)
		at[k[attrKey].S] = i
		left = append(left, k)
	}
	for len(left) > 0 {
		now := left[:min(len(left), maxKeys)]
		var answer struct {
			Responses       map[string][]item
			UnprocessedKeys map[string]batch
		}
		err := s.unlessMissing(s.askBriefly(ctx, "BatchGetItem", struct{ RequestItems map[string]batch }{
			map[string]batch{s.table: {now, true}}}, &answer))
		if err != nil {
			return nil, err
		}
		for _, found := range answer.Responses[s.table] {
			i, asked := at[found[attrKey].S]
			if !asked {
				return nil, errNoDynamoDB
			}
			values[i] = valueOf(found)
		}
		again := answer.UnprocessedKeys[s.table].Keys
		if len(again) >= len(now) {
			return nil, errors.New("the table is throttled: none of the items was read")
		}
		left = append(left[len(now):], again...)
	}
	return values, nil
}

// pageSize is how many items a page of a scan has at most. DynamoDB also ends it after a MiB.
const pageSize = 1000

type scanRequest struct {
	TableName                 string
	ConsistentRead            bool
	Limit                     int
	FilterExpression          string            `json:",omitempty"`
	ExpressionAttributeNames  map[string]string `json:",omitempty"`
	ExpressionAttributeValues item              `json:",omitempty"`
	ExclusiveStartKey         item              `json:",omitempty"`
}

// List implements [cas.Store]. Items with another "/" are those of longer prefixes.
func (s *store) List(ctx context.Context, prefix, page string) (items []cas.Item, next string, err error) {
	found, next, err := s.scan(ctx, s.prefix+prefix, page)
	for _, i := range found {
		key, ours := strings.CutPrefix(i[attrKey].S, s.prefix)
		if ours && key != "" && !strings.Contains(key, "/") {
			items = append(items, cas.Item{Key: key, Value: valueOf(i)})
		}
	}
	return items, next, err
}

// scan reads a page of the items whose keys begin with a prefix.
func (s *store) scan(ctx context.Context, prefix, page string) (items []item, next string, err error) {
	r := scanRequest{TableName: s.table, ConsistentRead: true, Limit: pageSize}
	if prefix != "" {
		r.FilterExpression, r.ExpressionAttributeNames = "begins_with(#k, :prefix)", map[string]string{"#k": attrKey}
		r.ExpressionAttributeValues = item{":prefix": {S: prefix}}
	}
	if page != "" {
		r.ExclusiveStartKey = item{attrKey: {S: page}}
	}
	var answer struct {
		Items            []item
		LastEvaluatedKey item
	}
	err = s.unlessMissing(s.ask(ctx, "Scan", r, &answer))
	if answer.LastEvaluatedKey != nil && answer.LastEvaluatedKey[attrKey].S == "" {
		return nil, "", errNoDynamoDB
	}
	return answer.Items, answer.LastEvaluatedKey[attrKey].S, err
}

// askLimit is the time limit of each request that package cas does not limit.
const askLimit = 5 * time.Second

// askBriefly is ask with askLimit.
func (s *store) askBriefly(ctx context.Context, action string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return s.ask(ctx, action, in, out)
}

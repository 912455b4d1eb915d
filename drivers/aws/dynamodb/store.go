package dynamodb

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
)

// The attributes of an item. DynamoDB reserves the first word in expressions.
const (
	attrKey    = "name"
	attrRecord = "record"
	attrToken  = "fencingToken"
)

type (
	attribute = dynamo.Attribute
	item      = dynamo.Item
)

// store is a [cas.Store] of the items of a table whose keys begin with a prefix.
type store struct {
	*dynamo.Table
	prefix    string // empty, or with a slash at its end
	onlyReads bool
}

// key is the key of the item for one of package cas. That has no "/".
func (s *store) key(key string) item { return item{attrKey: {S: s.prefix + key}} }

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

// Get implements [cas.Store].
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	found, err := s.get(ctx, s.key(key))
	return valueOf(found), err
}

// get reads an item, or returns nil. Every Open writes one, and so notices a global table of the version of 2017.
func (s *store) get(ctx context.Context, key item) (item, error) {
	found, err := s.Table.Get(ctx, key)
	return found, s.unlessMissing(err)
}

// unlessMissing ignores that there is no table, for a Locker that only reads: all locks are free then.
func (s *store) unlessMissing(err error) error {
	if s.onlyReads && dynamo.HasCode(err, dynamo.CodeNoTable) {
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
	p := putRequest{TableName: s.Name, Item: i}
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
	var failed *dynamo.FailedError
	switch err := s.Ask(ctx, "PutItem", p, &struct{}{}); {
	case err == nil:
		return cas.Written{Version: versionOf(string(data))}, nil
	case dynamo.HasCode(err, dynamo.CodeTransaction): // one of the program's own is under way: nothing was done, and it is over soon
		return cas.Written{}, cas.ErrConflict
	case !errors.As(err, &failed) || failed.Code != dynamo.CodeCondition:
		return cas.Written{}, err
	case failed.Present == nil:
		return cas.Written{}, cas.ErrConflict
	default:
		return cas.Written{}, &cas.RefusedError{Present: valueOf(failed.Present)}
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
		err := s.unlessMissing(s.AskBriefly(ctx, "BatchGetItem", struct{ RequestItems map[string]batch }{
			map[string]batch{s.Name: {now, true}}}, &answer))
		if err != nil {
			return nil, err
		}
		for _, found := range answer.Responses[s.Name] {
			i, asked := at[found[attrKey].S]
			if !asked {
				return nil, dynamo.ErrNoDynamoDB
			}
			values[i] = valueOf(found)
		}
		again := answer.UnprocessedKeys[s.Name].Keys
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
	r := scanRequest{TableName: s.Name, ConsistentRead: true, Limit: pageSize}
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
	err = s.unlessMissing(s.Ask(ctx, "Scan", r, &answer))
	if answer.LastEvaluatedKey != nil && answer.LastEvaluatedKey[attrKey].S == "" {
		return nil, "", dynamo.ErrNoDynamoDB
	}
	return answer.Items, answer.LastEvaluatedKey[attrKey].S, err
}

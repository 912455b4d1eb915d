package etcd

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// key is the key of etcd for one of package cas. That has no "/".
func (s *store) key(key string) string { return s.prefix + "/" + key }

// The version of a value is its revision and the value itself. A revision alone would come again after a restore from a backup: the cluster
// counts on from there, and has the same ID. No two values that a Locker writes are equal.
func versionOf(revision int64, value []byte) string {
	return strconv.FormatInt(revision, 10) + ":" + string(value)
}

func parseVersion(version string) (revision int64, value []byte, ok bool) {
	number, text, ok := strings.Cut(version, ":")
	revision, err := strconv.ParseInt(number, 10, 64)
	return revision, []byte(text), ok && err == nil && revision > 0
}

// valueOf is the value of the only key of an answer. It has no Order: tokens follow the clocks of the programs. A token ahead of them would
// come again after a restore from a backup.
func valueOf(kvs []keyValue) cas.Value {
	if len(kvs) == 0 {
		return cas.Value{}
	}
	return cas.Value{Data: kvs[0].Value, Version: versionOf(kvs[0].ModRevision, kvs[0].Value)}
}

// Get implements [cas.Store]. The read is linearizable: a majority has confirmed that no later write is missing.
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	var a rangeAnswer
	err := s.ask(ctx, call{method: methodRange, body: rangeRequest{Key: []byte(s.key(key))}}, &a)
	return valueOf(a.KVs), err
}

// maxRanges is how many keys one transaction reads. Members allow 128 operations, if --max-txn-ops is not set.
const maxRanges = 100

// GetBatch implements [cas.BatchGetter].
func (s *store) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	values := make([]cas.Value, 0, len(keys))
	for len(values) < len(keys) {
		var t txnRequest
		for _, key := range keys[len(values):min(len(keys), len(values)+maxRanges)] {
			t.Success = append(t.Success, operation{Range: &rangeRequest{Key: []byte(s.key(key))}})
		}
		var a txnAnswer
		if err := s.ask(ctx, call{method: methodTxn, body: t}, &a); err != nil {
			return nil, err
		}
		if len(a.Responses) != len(t.Success) {
			return nil, errNoEtcd
		}
		for _, r := range a.Responses {
			values = append(values, valueOf(r.Range.KVs))
		}
	}
	return values, nil
}

// Put implements [cas.Store]. A write with another token than the value before is a grant: it also writes the token for [TokenKey].
//
// Promise 1: etcd compares and writes in one step.
func (s *store) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	full, revision, before := []byte(s.key(key)), int64(0), []byte(nil)
	if version != "" {
		var ok bool
		if revision, before, ok = parseVersion(version); !ok {
			return cas.Written{}, cas.ErrConflict // no value has such a version
		}
	}
	t := txnRequest{
		Compare: []compare{{Key: full, Target: targetMod, ModRevision: revision}},
		Success: []operation{{Put: &putRequest{Key: full, Value: data}}},
		Failure: []operation{{Range: &rangeRequest{Key: full}}},
	}
	if len(before) > 0 {
		t.Compare = append(t.Compare, compare{Key: full, Target: targetValue, Value: before})
	}
	if present, _ := cas.ReadPresent(data); present.Token > 0 {
		if earlier, _ := cas.ReadPresent(before); earlier.Token != present.Token {
			t.Success = append(t.Success, operation{Put: &putRequest{Key: []byte(s.key(key) + tokenSuffix), Value: tokenValue(present.Token)}})
		}
	}
	var a txnAnswer
	switch err := s.ask(ctx, call{method: methodTxn, body: t, writes: true}, &a); {
	case errors.Is(err, errNoSpace):
		return s.atQuota(ctx, key, data, version, err)
	case err != nil:
		return cas.Written{}, err
	case a.Succeeded && a.Header.Revision > 0:
		return cas.Written{Version: versionOf(a.Header.Revision, data)}, nil
	case a.Succeeded || len(a.Responses) != 1:
		return cas.Written{}, errNoEtcd
	}
	if present := valueOf(a.Responses[0].Range.KVs); present.Version != "" {
		return cas.Written{}, &cas.RefusedError{Present: present}
	}
	return cas.Written{}, cas.ErrConflict
}

// atQuota finds out whether a write was done that was refused for want of space.
func (s *store) atQuota(ctx context.Context, key string, data []byte, version string, refused error) (cas.Written, error) {
	switch present, err := s.Get(ctx, key); {
	case err != nil:
		return cas.Written{}, refused // unknown
	case present.Version == version:
		return cas.Written{}, driver.Denied(refused)
	case bytes.Equal(present.Data, data): // no other write has this value
		return cas.Written{Version: present.Version}, nil
	}
	return cas.Written{}, refused // somebody has replaced what was there before it, or it
}

// pageSize is how many keys a page has, those with tokens included. Half of them have values, of up to 290 KB with all that a record can
// have, and the page must be shorter than maxAnswer.
const pageSize = 300

// List implements [cas.Store]. Keys with another "/" are those of tokens, and of longer prefixes.
func (s *store) List(ctx context.Context, prefix, after string) (items []cas.Item, next string, err error) {
	from := s.key(prefix)
	if after != "" {
		from = s.key(after) + "\x00"
	}
	var a rangeAnswer
	if err := s.ask(ctx, call{method: methodRange, body: rangeRequest{Key: []byte(from), RangeEnd: endOf(s.key(prefix)), Limit: pageSize}},
		&a); err != nil {
		return nil, "", err
	}
	for _, kv := range a.KVs {
		key, ok := strings.CutPrefix(string(kv.Key), s.key(""))
		if !ok {
			return nil, "", errNoEtcd
		}
		if a.More {
			next = key
		}
		if !strings.Contains(key, "/") {
			items = append(items, cas.Item{Key: key, Value: valueOf([]keyValue{kv})})
		}
	}
	if a.More && len(a.KVs) == 0 {
		return nil, "", errors.New("the page of the list is empty, and there are more")
	}
	return items, next, nil
}

// endOf is the end of the range of all keys with a prefix, whose last byte is not the greatest.
func endOf(prefix string) []byte {
	end := []byte(prefix)
	end[len(end)-1]++
	return end
}

var _ interface {
	cas.Store
	cas.BatchGetter
} = (*store)(nil)

package mongo

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// No present server makes a TTL index on several fields, but an older one may have left one behind.
func TestCompoundTTLIndexIsRefused(t *testing.T) {
	t.Parallel()
	own := index{Name: indexName, Key: mustMarshal(docOf(fieldExpiresAt, 1)), TTL: rawValue(t, 86400)}
	for what, key := range map[string]doc{
		"expiresAt first": {field(fieldExpiresAt, 1), field(fieldOwner, 1)},
		"expiresAt last":  {field(fieldOwner, 1), field(fieldExpiresAt, 1)},
	} {
		other := index{Name: "theirs", Key: mustMarshal(key), TTL: rawValue(t, 60)}
		for _, all := range [][]index{{own, other}, {other, own}, {other}} {
			if wrong := wrongTTL(all); wrong == nil || wrong.Name != "theirs" {
				t.Errorf("%s: %v", what, wrong)
			}
		}
		other.TTL = bson.RawValue{}
		if wrong := wrongTTL([]index{own, other}); wrong != nil {
			t.Errorf("%s, without a TTL: %v", what, wrong)
		}
	}
}

func rawValue(t *testing.T, v any) bson.RawValue {
	t.Helper()
	kind, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: kind, Value: data}
}

// Of several indexes on expiresAt, the one that removes records first counts.
func TestSeveralIndexesOnExpiresAt(t *testing.T) {
	t.Parallel()
	up := index{Name: "up", Key: mustMarshal(docOf(fieldExpiresAt, 1))}
	down := index{Name: "down", Key: mustMarshal(docOf(fieldExpiresAt, -1)), TTL: rawValue(t, 86400)}
	both := index{Name: "both", Key: mustMarshal(docOf(fieldExpiresAt, 1)), TTL: rawValue(t, int64(3600))}
	for _, c := range []struct {
		all  []index
		want string
	}{
		{[]index{up}, "up"}, {[]index{up, down}, "down"}, {[]index{down, up}, "down"},
		{[]index{down, both}, "both"}, {[]index{both, down}, "both"},
	} {
		if got := retentionIndex(c.all); got == nil || got.Name != c.want {
			t.Errorf("%v: %v, want %s", c.all, got, c.want)
		}
	}
	if got := retentionIndex(nil); got != nil {
		t.Errorf("of no indexes: %v", got)
	}
}

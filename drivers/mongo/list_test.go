package mongo

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

// List reports damaged records among the valid ones.
func TestListOfManyAndDamaged(t *testing.T) {
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	const many = 2*listPage + 5
	var documents []any
	for i := range many {
		version := 1
		if i == listPage-2 { // after p-0003x it is the last of its page
			version = 3
		}
		documents = append(documents, doc{{Key: "_id", Value: fmt.Sprintf("p-%04d", i)}, {Key: "v", Value: version},
			{Key: "token", Value: int64(i + 1)}})
	}
	documents = append(documents, doc{{Key: "_id", Value: "p-0003x"}, {Key: "v", Value: 3}},
		doc{{Key: "_id", Value: "q"}, {Key: "v", Value: 1}}, doc{{Key: "_id", Value: 17}})
	if _, err := coll.InsertMany(bounded(t), documents); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r, err := range l.List(bounded(t), "p-") {
		got = append(got, r.Name)
		if damaged := r.Name == "p-0003x" || r.Name == "p-0098"; damaged != (err != nil) || damaged && !strings.Contains(err.Error(), r.Name) {
			t.Errorf("%q: got error %v", r.Name, err)
		}
	}
	if len(got) != many+1 || !slices.IsSorted(got) {
		t.Errorf("%d names of %d: %v", len(got), many+1, got)
	}
}

// A document without a name is no lock, and does not end a list of all locks.
func TestListSkipsDocumentsWithoutAName(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	l := newTestLocker(t, coll)
	for _, document := range []doc{
		{field("_id", "")}, // damaged: without a version
		{field("_id", 17)}, {field("_id", doc{field("a", 1)})},
		{field("_id", "a"), field("v", "x")}, {field("_id", "b"), field("v", 1), field("token", int64(5))},
	} {
		if _, err := coll.InsertOne(bounded(t), document); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for r, err := range l.List(bounded(t), "") {
		if err != nil {
			r.Name += ": error"
		}
		got = append(got, r.Name)
	}
	if want := []string{"a: error", "b"}; !slices.Equal(got, want) {
		t.Errorf("List yields %q, want %q", got, want)
	}
}

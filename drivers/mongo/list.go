package mongo

import (
	"context"
	"iter"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// listPage is how many records one command of a List reads. Each page is a command of its own,
// so that no cursor stays open on the server while the caller processes a page.
const listPage = 100

// List implements [driver.Lister]. It skips documents whose _id is not a lock's name, such as
// a number or the empty string.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		from := field("$gte", prefix)
		if prefix == "" {
			from = field("$gt", "")
		}
		for {
			page, err := l.page(ctx, prefix, from)
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, item := range page.items {
				if !yield(item.record, item.err) {
					return
				}
			}
			if page.last == "" {
				return
			}
			from = field("$gt", page.last)
		}
	}
}

type readResult struct {
	record driver.Record
	err    error
}

// resultOf decodes a document.
func resultOf(document bson.Raw) readResult {
	r, err := decodeRecord(document)
	if err != nil {
		return readResult{err: err}
	}
	return readResult{record: r.describe()}
}

type page struct {
	items []readResult
	last  string // the last name; empty if no page follows
}

// page reads the records from a name on. The collection has no collation, so _id is ordered by
// its bytes.
func (l *Locker) page(ctx context.Context, prefix string, from bson.E) (out page, err error) {
	var documents []bson.Raw
	err = l.do(ctx, op{verb: "list"}, func(ctx context.Context) (err error) {
		documents, err = findAll(ctx, l.majority, docOf(fieldName, doc{from}),
			options.Find().SetSort(docOf(fieldName, 1)).SetLimit(listPage).SetProjection(withDataAndWaiters))
		return err
	})
	for _, document := range documents {
		name := document.Lookup(fieldName).StringValue()
		if !strings.HasPrefix(name, prefix) {
			return out, err
		}
		item := resultOf(document)
		if item.err != nil {
			item = readResult{driver.Record{Name: name}, &driver.OpError{Op: "list", Backend: backend, Name: name, Err: item.err}}
		}
		if out.items = append(out.items, item); len(out.items) == listPage {
			out.last = name
		}
	}
	return out, err
}

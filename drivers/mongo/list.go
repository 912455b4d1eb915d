package mongo

import (
	"context"
	"errors"
	"iter"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
)

// listPage is how many records one command of a List asks for. Each page is a
// command of its own, so that nothing stays open on the server while the caller
// takes its time.
const listPage = 100

// List implements [holdfast.Lister]. A record that cannot be read does not hide
// the others: the error that names it comes last.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[holdfast.Record, error] {
	return func(yield func(holdfast.Record, error) bool) {
		var bad []error
		from := field("$gte", prefix)
		for {
			page, err := l.page(ctx, prefix, from)
			if err != nil {
				yield(holdfast.Record{}, errors.Join(append(bad, err)...))
				return
			}
			for _, item := range page.items {
				if item.err != nil {
					bad = append(bad, &holdfast.OpError{Op: "list", Backend: backend, Err: item.err})
				} else if !yield(item.record, nil) {
					return
				}
			}
			if page.last == "" {
				break
			}
			from = field("$gt", page.last)
		}
		if len(bad) > 0 {
			yield(holdfast.Record{}, errors.Join(bad...))
		}
	}
}

type listed struct {
	record holdfast.Record
	err    error
}

type page struct {
	items []listed
	last  string // the last name, empty if no page follows
}

// page reads the records from a name on. The order of _id is that of the bytes,
// since the collection has no collation.
func (l *Locker) page(ctx context.Context, prefix string, from bson.E) (page, error) {
	var out page
	err := l.do(ctx, op{verb: "list"}, func(ctx context.Context) error {
		cursor, err := l.writes.Find(ctx, is(fieldName, doc{from}),
			options.Find().SetSort(is(fieldName, 1)).SetLimit(listPage).SetProjection(everything))
		if err != nil {
			return err
		}
		defer func() { _ = cursor.Close(ctx) }()
		count := 0
		for cursor.Next(ctx) {
			name := cursor.Current.Lookup(fieldName).StringValue()
			if !strings.HasPrefix(name, prefix) {
				out.last = ""
				return nil
			}
			r, err := decodeRecord(cursor.Current)
			item := listed{err: err}
			if err == nil {
				item.record = r.describe()
			}
			out.items = append(out.items, item)
			if count++; count == listPage {
				out.last = name
			}
		}
		return cursor.Err()
	})
	return out, err
}

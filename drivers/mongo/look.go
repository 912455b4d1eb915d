package mongo

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// lookChunk is the most names that one command reads.
const lookChunk = 1000

// InspectBatch implements [driver.BatchInspector] with one command for every 1,000
// names. Like Inspect it tells what a majority of the servers has.
func (l *Locker) InspectBatch(ctx context.Context, names []string) ([]driver.Record, []error) {
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	note := func(i int, r driver.Record, err error) {
		if err != nil {
			errs[i] = &driver.OpError{Op: "inspect", Backend: backend, Name: names[i], Err: err}
		} else {
			records[i] = r
		}
	}
	var valid []int // indexes
	for i, name := range names {
		if invalid := driver.ValidateName(name, limits); invalid != nil && l.closing.Err() == nil {
			note(i, driver.Record{}, invalid)
		} else {
			valid = append(valid, i)
		}
	}
	each(batchParallel, slices.Collect(slices.Chunk(valid, lookChunk)), func(_ int, chunk []int) {
		found, err := l.lookUp(ctx, chunk, names)
		for _, i := range chunk {
			answer, there := found[names[i]]
			if !there {
				answer.record = driver.Record{Name: names[i], State: driver.StateFree}
			}
			note(i, answer.record, cmp.Or(err, answer.err))
		}
	})
	return records, errs
}

// lookUp reads the documents of a chunk's names, by name.
func (l *Locker) lookUp(ctx context.Context, chunk []int, names []string) (map[string]listed, error) {
	asked := make(list, len(chunk))
	for n, i := range chunk {
		asked[n] = names[i]
	}
	found := make(map[string]listed, len(chunk))
	err := l.run(ctx, op{verb: "inspect"}, func(ctx context.Context) error {
		// One more than there can be: the server sees that there are no others, and
		// keeps no cursor.
		cursor, err := l.writes.Find(ctx, is(fieldName, is("$in", asked)),
			options.Find().SetProjection(facts).SetBatchSize(int32(len(asked)+1)))
		if err != nil {
			return err
		}
		var documents []bson.Raw
		if err := cursor.All(ctx, &documents); err != nil {
			return err
		}
		for _, document := range documents {
			name := document.Lookup(fieldName).StringValue()
			r, err := decodeRecord(document)
			if err != nil {
				found[name] = listed{err: err}
			} else {
				found[name] = listed{record: r.describe()}
			}
		}
		return nil
	})
	return found, err
}

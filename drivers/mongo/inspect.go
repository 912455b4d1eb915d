package mongo

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect implements [driver.Locker]. It reads with read concern "majority".
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Record, error) {
	out := driver.Record{Name: name, State: driver.StateFree}
	o := op{verb: "inspect", name: name, invalid: driver.ValidateName(name, limits)}
	err := l.do(ctx, o, func(ctx context.Context) error {
		_, r, err := readRecord(ctx, l.majority, name, withPast)
		if r != nil {
			out = r.describe()
			out.ReadAt, out.History = r.now, r.pastHolders(l.config.history)
		}
		return err
	})
	if err != nil {
		return driver.Record{}, err
	}
	return out, nil
}

// inspectChunkSize is the most names that one command reads.
const inspectChunkSize = 1000

// InspectBatch implements [driver.BatchInspector] with one command for every 1,000 names. It
// reads with read concern "majority", as Inspect does.
func (l *Locker) InspectBatch(ctx context.Context, waiter driver.WaiterID, names []string) ([]driver.Record, []error) {
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	store := func(i int, r driver.Record, err error) {
		if err != nil {
			errs[i] = &driver.OpError{Op: "inspect", Backend: backend, Name: names[i], Err: err}
		} else {
			records[i] = r
		}
	}
	projection := l.seenReaders.by(placeOf(l.id, waiter))
	var valid []int // indexes
	for i, name := range names {
		if invalid := driver.ValidateName(name, limits); invalid != nil && l.closing.Err() == nil {
			store(i, driver.Record{}, invalid)
		} else {
			valid = append(valid, i)
		}
	}
	forEachParallel(parallelCommands, slices.Collect(slices.Chunk(valid, inspectChunkSize)), func(_ int, chunk []int) {
		found, err := l.readChunk(ctx, projection, chunk, names)
		for _, i := range chunk {
			result, there := found[names[i]]
			if !there {
				result.record = driver.Record{Name: names[i], State: driver.StateFree}
			}
			store(i, result.record, cmp.Or(err, result.err))
		}
	})
	return records, errs
}

// readChunk reads the documents of a chunk's names, by name.
func (l *Locker) readChunk(ctx context.Context, projection bson.Raw, chunk []int, names []string) (map[string]readResult, error) {
	wanted := make(list, len(chunk))
	for n, i := range chunk {
		wanted[n] = names[i]
	}
	found := make(map[string]readResult, len(chunk))
	err := l.run(ctx, op{verb: "inspect"}, func(ctx context.Context) error {
		// The batch size is one more than the number of documents, so the server knows that
		// the batch is complete and keeps no cursor.
		documents, err := findAll(ctx, l.majority, docOf(fieldName, docOf("$in", wanted)),
			options.Find().SetProjection(projection).SetBatchSize(int32(len(wanted)+1)))
		for _, document := range documents {
			found[document.Lookup(fieldName).StringValue()] = resultOf(document)
		}
		return err
	})
	return found, err
}

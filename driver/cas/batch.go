package cas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// BatchGetter is an optional method of a [Store] that reads many values for less than a Get of each.
type BatchGetter interface {
	// GetBatch returns for each of at most 1,000 keys what Get does, in order. It may leave out the time of a key without a value. A
	// store whose lists have the values may use [GetByList]. With a [BatchError] the other values count.
	GetBatch(ctx context.Context, keys []string) ([]Value, error)
}

// BatchError says why a [BatchGetter] could not read the values of some keys, as when one of several servers does not answer.
type BatchError map[string]error

// Error is that of one of the keys.
func (e BatchError) Error() string {
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Sprintf("%d values were not read; that of %s: %s", len(e), driver.Quote(first), driver.ErrorText(e[first]))
}

// maxBatch is how many keys a GetBatch has at most.
const maxBatch = 1000

// InspectBatch implements [driver.BatchInspector]. It reads several values at a time, or all together if the store can.
func (l *Locker) InspectBatch(ctx context.Context, waiter driver.WaiterID, names []string) ([]driver.Record, []error) {
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	batch := l.readBatch(ctx, names)
	parallel(len(names), func(i int) {
		errs[i] = l.call(ctx, "inspect", names[i], driver.ValidateName(names[i], l.config.Info.Limits), func(ctx context.Context) error {
			s, err := l.fromBatch(ctx, names[i], batch)
			if err == nil {
				records[i] = s.view(l, waiter)
				records[i].Data = nil
			}
			return err
		})
	})
	return records, errs
}

// batched is a value of a GetBatch, or its error. asked is the elapsed time when it began.
type batched struct {
	Value
	asked time.Duration
	err   error
}

// readBatch reads the values of names by GetBatch. Without one, and of names that are not valid, it returns nothing.
func (l *Locker) readBatch(ctx context.Context, names []string) map[string]batched {
	getter, can := l.store.(BatchGetter)
	if !can || len(names) < 2 {
		return nil
	}
	var keys []string
	for _, name := range names {
		if driver.ValidateName(name, l.config.Info.Limits) == nil {
			keys = append(keys, lockrecord.Key(name))
		}
	}
	slices.Sort(keys)
	values := map[string]batched{}
	for chunk := range slices.Chunk(slices.Compact(keys), maxBatch) {
		asked := l.elapsed()
		var read []Value
		failed := map[string]error{}
		err := l.calls.Run(ctx, 3*l.config.CallLimit, nil, func(ctx context.Context) error {
			var err error
			read, err = getter.GetBatch(ctx, chunk)
			if some := (BatchError)(nil); errors.As(err, &some) {
				for key, err := range some {
					failed[key] = fromStore(ctx, "reading the value", err)
				}
				err = nil
			}
			if err == nil && len(read) != len(chunk) {
				err = fmt.Errorf("the store returned %d values for %d keys", len(read), len(chunk))
			}
			return fromStore(ctx, "reading the values", err)
		})
		for i, key := range chunk {
			switch err := cmp.Or(err, failed[key]); {
			case errors.Is(err, driver.ErrDenied): // there may be the right to read others, if it is that of the whole batch
			case err != nil:
				values[key] = batched{err: err}
			default:
				values[key] = batched{Value: read[i], asked: asked}
			}
		}
	}
	return values
}

// fromBatch makes the state of a name from its value in a batch. One that is not there is read.
func (l *Locker) fromBatch(ctx context.Context, name string, batch map[string]batched) (*state, error) {
	key := lockrecord.Key(name)
	switch v, there := batch[key]; {
	case !there:
		return l.load(ctx, name)
	case v.err != nil:
		return nil, v.err
	case v.Version == "" && v.Now.IsZero():
		return &state{record: record{Name: name}}, nil // it is free at any time
	default:
		return l.read(key, name, v.Value, v.asked)
	}
}

// GetByList is a [BatchGetter] for a store whose lists are cheaper than a Get of each key. It lists what begins as all the keys do, and
// gets what was listed without a value. After so many pages it gets the keys that are still missing: there are many others.
func GetByList(ctx context.Context, store Store, keys []string, pages int) ([]Value, error) {
	found, complete := map[string]Value{}, false
	prefix, missing := commonPrefix(keys), map[string]bool{}
	for _, key := range keys {
		missing[key] = true
	}
	for page := ""; pages > 0 && len(missing) > 0 && !complete; pages-- {
		items, next, err := store.List(ctx, prefix, page)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			if missing[item.Key] {
				delete(missing, item.Key)
				found[item.Key] = item.Value
			}
		}
		page, complete = next, next == ""
	}
	values, errs := make([]Value, len(keys)), make([]error, len(keys))
	parallel(len(keys), func(i int) {
		v, listed := found[keys[i]]
		if values[i] = v; v.Version == "" && (listed || !complete) {
			values[i], errs[i] = store.Get(ctx, keys[i])
		}
	})
	return values, errors.Join(errs...)
}

// commonPrefix is what all keys begin with.
func commonPrefix(keys []string) string {
	prefix := ""
	for i, key := range keys {
		if i == 0 {
			prefix = key
		}
		for !strings.HasPrefix(key, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}

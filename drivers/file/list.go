package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// listed is one result of List. With an error the record has only its name.
type listed struct {
	driver.Record
	err error
}

// listChunk is how many records one call of a list reads. Each call has the time limit, however many records the folder has.
const listChunk = 32

// List implements [driver.Lister].
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		all, err := l.readAll(ctx, prefix)
		for _, r := range all {
			if !yield(r.Record, opError(ctx, "list", r.Name, r.err)) {
				return
			}
		}
		if err != nil {
			yield(driver.Record{}, err)
		}
	}
}

// readAll reads all records.
func (l *Locker) readAll(ctx context.Context, prefix string) (all []listed, err error) {
	stems, err := listCall(ctx, l, prefix, func(context.Context) ([]string, error) { return l.stems(prefix) })
	if err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(stems, listChunk) {
		found, err := listCall(ctx, l, prefix, func(ctx context.Context) ([]listed, error) { return l.readStems(ctx, prefix, chunk) })
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// listCall makes one of the calls of a list.
func listCall[T any](ctx context.Context, l *Locker, prefix string, read func(context.Context) (T, error)) (T, error) {
	return result(func(set func(T)) error {
		return l.call(ctx, "list", prefix, nil, func(ctx context.Context) error {
			found, err := read(ctx)
			set(found)
			return err
		})
	})
}

// stems returns the stems of the records that may have the prefix.
func (l *Locker) stems(prefix string) (stems []string, err error) {
	entries, err := os.ReadDir(l.dir)
	if l.absent.Load() && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the folder: %w", l.explainUnreadable(err))
	}
	l.absent.Store(false)
	for _, entry := range entries {
		if base, ok := strings.CutSuffix(entry.Name(), ".json"); ok && lockrecord.MayHavePrefix(base, prefix) {
			stems = append(stems, base)
		}
	}
	return stems, nil
}

// readStems reads the records of some stems.
func (l *Locker) readStems(ctx context.Context, prefix string, stems []string) (found []listed, err error) {
	for _, base := range stems {
		r, err := l.readStem(ctx, base)
		switch {
		case ctx.Err() != nil:
			return nil, ended(ctx)
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		case err != nil:
			found = append(found, listed{driver.Record{Name: nameOf(base)}, err})
		case strings.HasPrefix(r.Name, prefix):
			found = append(found, listed{r, nil})
		}
	}
	return found, nil
}

// InspectBatch implements [driver.BatchInspector]. It reads one file for each name, in one call.
func (l *Locker) InspectBatch(ctx context.Context, _ driver.WaiterID, names []string) ([]driver.Record, []error) {
	names = slices.Clone(names) // the caller may return and change them first
	all, failed := result(func(set func([]listed)) error {
		return l.runDetached(ctx, nil, func(ctx context.Context) error {
			read := make([]listed, len(names))
			for i, name := range names {
				if ctx.Err() != nil {
					return ended(ctx)
				}
				read[i].Record, read[i].err = l.inspect(ctx, name)
			}
			set(read)
			return nil
		})
	})
	records, errs := make([]driver.Record, len(names)), make([]error, len(names))
	for i, name := range names {
		err := failed
		if err == nil {
			records[i], err = all[i].Record, all[i].err
		}
		errs[i] = opError(ctx, "inspect", name, err)
	}
	return records, errs
}

// inspect reads a lock's record, without the data.
func (l *Locker) inspect(ctx context.Context, name string) (driver.Record, error) {
	if err := driver.ValidateName(name, limits); err != nil {
		return driver.Record{}, err
	}
	rec, now, err := l.readName(ctx, name)
	if err != nil {
		return driver.Record{}, err
	}
	rec.Data = nil
	return rec.Record(name, now), nil
}

// readName reads the record of a name, which may be missing, and before that the clock. It does not lock the
// lock file; see [Locker.change].
func (l *Locker) readName(ctx context.Context, name string) (record, lockstate.Moment, error) {
	now, err := l.now()
	if err != nil {
		return record{}, now, err
	}
	rec, err := l.load(ctx, filepath.Join(l.dir, stem(name)+".json"), name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return rec, now, err
}

// readStem reads the record of a stem. It does not lock the lock file, since a record is always
// whole. So a process that was stopped while it had a file locked delays no List. The clock is
// read first, as in [Locker.change].
func (l *Locker) readStem(ctx context.Context, base string) (driver.Record, error) {
	now, err := l.now()
	if err != nil {
		return driver.Record{}, err
	}
	rec, err := l.loadStem(ctx, base)
	if err != nil {
		return driver.Record{}, err
	}
	return rec.Record(rec.Name, now), nil
}

// loadStem reads the record of a stem and checks its name and origin.
func (l *Locker) loadStem(ctx context.Context, base string) (record, error) {
	path := filepath.Join(l.dir, base+".json")
	rec, err := l.readRecord(ctx, path)
	if err != nil {
		return record{}, err
	}
	if stem(rec.Name) != base {
		return record{}, driver.Damaged(fmt.Errorf("the record %s is that of lock %q: was it copied?", path, rec.Name))
	}
	return l.checkOrigin(path, rec)
}

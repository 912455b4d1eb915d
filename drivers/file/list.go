package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// listed is what was read of a record: no more than its name, if there is an error.
type listed struct {
	driver.Record
	err error
}

// List implements [driver.Lister].
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		all, err := answer(func(set func([]listed)) error {
			return l.call(ctx, "list", prefix, nil, func(ctx context.Context) error {
				found, err := l.readAll(ctx, prefix)
				set(found)
				return err
			})
		})
		for _, r := range all {
			if r.err != nil {
				r.err = &driver.OpError{Op: "list", Backend: backend, Name: r.Name, Err: r.err}
			}
			if !yield(r.Record, r.err) {
				return
			}
		}
		if err != nil {
			yield(driver.Record{}, err)
		}
	}
}

// readAll reads all records.
func (l *Locker) readAll(ctx context.Context, prefix string) ([]listed, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder: %w", err)
	}
	var found []listed
	for _, entry := range entries {
		base, ok := strings.CutSuffix(entry.Name(), ".json")
		if !ok || !mayBegin(base, prefix) {
			continue
		}
		r, err := l.readStem(base)
		switch {
		case ctx.Err() != nil:
			return nil, ended(ctx)
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil:
			found = append(found, listed{driver.Record{Name: nameOf(base)}, err})
		case strings.HasPrefix(r.Name, prefix):
			found = append(found, listed{r, nil})
		}
	}
	slices.SortFunc(found, func(a, b listed) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// nameOf returns the name that a stem stands for, or the stem itself if it does not tell.
func nameOf(base string) string {
	if name, err := url.PathUnescape(base); err == nil && stem(name) == base {
		return name
	}
	return base
}

// mayBegin reports whether a stem can be that of a name with the prefix, so that
// not every record must be read. That of a long name does not tell.
func mayBegin(stem, prefix string) bool {
	name, err := url.PathUnescape(stem)
	return err != nil || strings.Contains(stem, "~") || strings.HasPrefix(name, prefix)
}

// readStem reads the record of a stem, and takes no lock for that: it is whole, and a process
// that was stopped with the lock keeps nobody from the others. The clock is read first, as in
// [Locker.change].
func (l *Locker) readStem(base string) (driver.Record, error) {
	now, err := l.now()
	if err != nil {
		return driver.Record{}, err
	}
	rec, err := l.loadStem(base)
	if err != nil {
		return driver.Record{}, err
	}
	return rec.Record(rec.Name, now), nil
}

func (l *Locker) loadStem(base string) (record, error) {
	path := filepath.Join(l.dir, base+".json")
	rec, err := l.readRecord(path)
	if err != nil {
		return record{}, err
	}
	if stem(rec.Name) != base {
		return record{}, fmt.Errorf("the record %s is that of lock %q: was it copied?", path, rec.Name)
	}
	return l.here(path, rec)
}

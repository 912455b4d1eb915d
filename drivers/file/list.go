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

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockstate"
)

// List implements [holdfast.Lister]. A record that cannot be read does not hide
// the others: its error comes last.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[holdfast.Record, error] {
	return func(yield func(holdfast.Record, error) bool) {
		type outcome struct {
			found  []holdfast.Record
			failed error
		}
		all, err := answer(func(set func(outcome)) error {
			return l.call(ctx, "list", prefix, nil, func(ctx context.Context) error {
				found, err := l.readAll(ctx, prefix)
				set(outcome{found, err})
				return nil
			})
		})
		if err == nil && all.failed != nil {
			err = &holdfast.OpError{Op: "list", Backend: backend, Name: prefix, Err: all.failed}
		}
		for _, r := range all.found {
			if !yield(r, nil) {
				return
			}
		}
		if err != nil {
			yield(holdfast.Record{}, err)
		}
	}
}

// readAll returns what could be read, and the errors of what could not.
func (l *Locker) readAll(ctx context.Context, prefix string) ([]holdfast.Record, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder: %w", err)
	}
	var found []holdfast.Record
	var failed []error
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
			failed = append(failed, err)
		case strings.HasPrefix(r.Name, prefix):
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b holdfast.Record) int { return strings.Compare(a.Name, b.Name) })
	return found, errors.Join(failed...)
}

// mayBegin reports whether a stem can be that of a name with the prefix, so that
// not every record must be read. That of a long name does not tell.
func mayBegin(stem, prefix string) bool {
	name, err := url.PathUnescape(stem)
	return err != nil || strings.Contains(stem, "~") || strings.HasPrefix(name, prefix)
}

// readStem reads the record of a stem, and takes no lock for that: it is whole, and a process
// that was stopped with the lock keeps nobody from the others.
func (l *Locker) readStem(base string) (holdfast.Record, error) {
	name, lock, err := l.loadStem(base)
	if err != nil {
		return holdfast.Record{}, err
	}
	now, err := l.clock.now()
	if err != nil {
		return holdfast.Record{}, fmt.Errorf("reading the clock: %w", err)
	}
	return lock.Record(name, now), nil
}

func (l *Locker) loadStem(base string) (name string, lock lockstate.Lock, err error) {
	path := filepath.Join(l.dir, base+".json")
	rec, err := l.readRecord(path)
	if err != nil {
		return "", lockstate.Lock{}, err
	}
	if stem(rec.Name) != base {
		return "", lockstate.Lock{}, fmt.Errorf("the record %s is that of lock %q: was it copied?", path, rec.Name)
	}
	lock, err = l.here(path, rec)
	return rec.Name, lock, err
}

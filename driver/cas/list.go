package cas

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// parallelReads is how many values one call reads at a time.
const parallelReads = 16

// parallel makes n calls, some of them at a time.
func parallel(n int, call func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, parallelReads) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				call(i)
			}
		})
	}
	wg.Wait()
}

// listed is one result of List. With an error the record has only its name.
type listed struct {
	driver.Record
	err error
}

// List implements [driver.Lister]. It reads all records before it yields the first, without their data, since
// the order of the keys is not that of the names.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		all, err := l.readAll(ctx, prefix)
		for _, r := range all {
			if r.err != nil {
				r.err = &driver.OpError{Op: "list", Backend: l.config.Info.Backend, Name: r.Name, Err: r.err}
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

// readAll reads the records of a prefix, page by page. With an error it returns those of the pages before.
func (l *Locker) readAll(ctx context.Context, prefix string) (found []listed, err error) {
	var seen pagesSeen
	for page, last := "", false; err == nil && !last; {
		err = l.call(ctx, "list", prefix, nil, func(ctx context.Context) error {
			asked := l.elapsed()
			items, next, err := l.page(ctx, lockrecord.KeyPrefix(prefix), page)
			if err == nil {
				items, err = seen.see(items, next)
			}
			if page, last = next, next == ""; err == nil {
				found = append(found, l.readPage(ctx, prefix, items, asked)...)
				err = ctx.Err()
			}
			return err
		})
	}
	slices.SortFunc(found, func(a, b listed) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(found, func(a, b listed) bool { return a.Name == b.Name && (a.err == nil) == (b.err == nil) }), err
}

// page lists a page of keys.
func (l *Locker) page(ctx context.Context, prefix, page string) (items []Item, next string, err error) {
	limited, cancel := context.WithTimeout(ctx, l.config.CallLimit)
	defer cancel()
	items, next, err = l.store.List(limited, prefix, page)
	return items, next, fromStore(ctx, "listing the keys", err)
}

// maxVainPages is after how many pages without a new key a list fails. A store that is shared with others may return many
// empty pages.
const maxVainPages = 10_000

// pagesSeen has what the pages of a list have brought, so that the list of a store whose pages go round ends.
type pagesSeen struct {
	pages, keys map[string]bool
	vain        int // pages in a row that have brought no new key
}

// see takes in a page, and returns its keys that are new.
func (p *pagesSeen) see(items []Item, next string) (fresh []Item, err error) {
	if p.pages == nil {
		p.pages, p.keys = map[string]bool{}, map[string]bool{}
	}
	for _, item := range items {
		if !p.keys[item.Key] {
			p.keys[item.Key] = true
			fresh = append(fresh, item)
		}
	}
	if p.vain++; len(fresh) > 0 {
		p.vain = 0
	}
	switch {
	case next != "" && p.pages[next]:
		return nil, fmt.Errorf("the store's list does not end: its page %s comes again", driver.Quote(next))
	case p.vain > maxVainPages:
		return nil, fmt.Errorf("the store's list does not end: %d pages in a row have no new key", p.vain)
	}
	p.pages[next] = true
	return fresh, nil
}

// errMissing says that a key that was listed has no value any more.
var errMissing = errors.New("there is no value")

// readPage reads the records of keys. It leaves out keys that are no lock's, and records with another prefix.
func (l *Locker) readPage(ctx context.Context, prefix string, items []Item, asked time.Duration) []listed {
	items = slices.DeleteFunc(items, func(item Item) bool {
		_, isKey := lockrecord.NameOfKey(item.Key)
		return !isKey && !lockrecord.IsLong(item.Key) || !lockrecord.MayHavePrefix(item.Key, prefix)
	})
	page := make([]listed, len(items))
	parallel(len(items), func(i int) {
		s, err := l.readItem(ctx, items[i], asked)
		switch {
		case err != nil:
			page[i] = listed{driver.Record{Name: items[i].Key}, err}
			if name, ok := lockrecord.NameOfKey(items[i].Key); ok {
				page[i].Name = name
			}
		case !s.Removed && strings.HasPrefix(s.Name, prefix):
			page[i].Record = s.view(l, "")
			page[i].Data = nil
		}
	})
	return slices.DeleteFunc(page, func(r listed) bool { return r.Name == "" || errors.Is(r.err, errMissing) })
}

func (l *Locker) readItem(ctx context.Context, item Item, asked time.Duration) (*state, error) {
	v := item.Value
	if v.Version == "" {
		asked = l.elapsed()
		var err error
		if v, err = l.get(ctx, item.Key); err != nil {
			return nil, err
		}
		if v.Version == "" {
			return nil, errMissing
		}
	}
	return l.read(item.Key, "", v, asked)
}

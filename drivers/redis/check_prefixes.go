package redis

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

const (
	// lookFor is how long the keys of one server are looked through.
	lookFor = 5 * time.Second
	// namedPrefixes is how many prefixes a finding names.
	namedPrefixes = 10
)

// lookForPrefixes looks for the key that each program with another prefix has made: a prefix is one set of locks.
func (e *examination) lookForPrefixes(ctx context.Context) bool {
	if e.otherPrefixes == nil {
		e.otherPrefixes = map[string]bool{}
	}
	type page struct {
		keys []string
		next uint64
	}
	own, end := e.store.config.prefix, time.Now().Add(lookFor)
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		if time.Now().After(end) {
			e.prefixesUnchecked = "the database has too many keys"
			return true
		}
		limited, cancel := context.WithTimeout(ctx, e.store.config.timeout)
		p, err := do(limited, e.store, true, func(ctx context.Context) (p page, err error) {
			p.keys, p.next, err = e.client.Scan(ctx, cursor, "*"+cas.ProbeKey, scanCount).Result()
			return p, err
		})
		cancel()
		if err != nil {
			e.prefixesUnchecked = err.Error()
			return true
		}
		for _, key := range p.keys {
			if prefix := strings.TrimSuffix(key, cas.ProbeKey); prefix != own && validPrefix.MatchString(prefix) {
				e.otherPrefixes[driver.Quote(prefix)] = true
			}
		}
		cursor = p.next
	}
	return true
}

// prefixes reports what lookForPrefixes has found.
func (e *examination) prefixes(context.Context) bool {
	others := slices.Sorted(maps.Keys(e.otherPrefixes))
	if n := len(others) - namedPrefixes; n > 0 {
		others = append(others[:namedPrefixes], "and others")
	}
	list := strings.Join(others, ", ")
	switch own := driver.Quote(e.store.config.prefix); {
	case len(others) > 0 && e.store.config.named:
		e.OK(subjectPrefix, "the database also has the prefixes %s, whose locks are others", list)
	case len(others) > 0:
		e.Doubtful(subjectPrefix, "name the prefix in the URL parameter "+paramPrefix+" of all programs.", "the locks are under the default "+
			"prefix %s, and the database also has %s: a program with another prefix takes its locks there, beside the holders here", own, list)
	case e.prefixesUnchecked != "":
		e.Unchecked(subjectPrefix, "", "whether the database has other prefixes of locks is not known: %s", e.prefixesUnchecked)
	default:
		e.OK(subjectPrefix, "no program with another prefix than %s has used the database", own)
	}
	return true
}

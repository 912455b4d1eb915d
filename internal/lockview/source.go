// Package lockview is what the page of package web and the command's table, reports and metrics share. It lists the locks of
// a backend, once or again and again, selects and sorts them, and says in which state they are, who has them, for how long
// still, and how they ended.
package lockview

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// listTimeout bounds one listing.
	listTimeout = 30 * time.Second
	// linger is how long the backend is still asked after the last reader has left, so that
	// a reader who reloads the page finds fresh locks.
	linger = 3 * time.Second
	// workShare is the part of the time that listing may take: one n-th.
	workShare = 5
	// maxBackoff is the longest wait after a listing that has failed, unless the interval is
	// longer: one that has waited for its time limit says nothing about the work of the backend.
	maxBackoff = 5 * time.Second
	// patience is how much longer than usual a listing may take before it is overdue.
	patience = 3 * time.Second
)

// Snapshot is what one listing has shown. It never changes.
type Snapshot struct {
	Number     int
	At         time.Time       // when the backend had answered
	Records    []driver.Record // by name, without data
	Unreadable []string        // names of records that cannot be read
	Err        error           // the listing failed; the rest is from the last one that did not
	Overdue    time.Time       // without another snapshot by then the backend does not answer
}

// Client is what a Source needs of a client of the library, above this package.
type Client interface {
	Inspect(ctx context.Context, name string) (driver.Record, error)
	List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error]
}

// Source lists the locks again and again while somebody looks at them.
type Source struct {
	client  Client
	prefix  string
	refresh time.Duration
	closing context.Context
	stop    context.CancelFunc
	loops   sync.WaitGroup

	owners owners

	mu      sync.Mutex
	readers int
	left    time.Time // when the last reader left
	running bool
	since   int // snapshots up to this number are old: nobody looked for a while after them
	latest  *Snapshot
	changed chan struct{} // closed when there is a later snapshot
}

// NewSource makes a Source of the locks whose names begin with prefix. Nothing is listed before
// somebody enters.
func NewSource(client Client, prefix string, refresh time.Duration) *Source {
	s := &Source{client: client, prefix: prefix, refresh: refresh, latest: &Snapshot{}, changed: make(chan struct{})}
	s.closing, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends the listing and waits for it.
func (s *Source) Close() {
	s.mu.Lock()
	s.stop() // from here on no loop begins
	s.mu.Unlock()
	s.loops.Wait()
}

// Enter counts a reader, and starts to list if nobody has looked before.
func (s *Source) Enter() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers++
	if !s.running && s.closing.Err() == nil {
		s.running = true
		s.since = s.latest.Number
		s.loops.Go(s.loop)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readers--
		s.left = time.Now()
	}
}

// After waits for a snapshot with a higher number. A reader that has entered gets none from before
// a time in which nobody looked. The error is that of ctx, or
// [driver.ErrClosed].
func (s *Source) After(ctx context.Context, number int) (*Snapshot, error) {
	for {
		s.mu.Lock()
		latest, changed, after := s.latest, s.changed, max(number, s.since)
		s.mu.Unlock()
		if latest.Number > after {
			return latest, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closing.Done():
			return nil, driver.ErrClosed
		}
	}
}

// Next returns the latest snapshot if it is fresh, and else waits for another one. The error is
// that of the listing.
func (s *Source) Next(ctx context.Context) (*Snapshot, error) {
	defer s.Enter()()
	s.mu.Lock()
	latest := s.latest
	s.mu.Unlock()
	if latest.Number == 0 || time.Since(latest.At) > 2*s.refresh || latest.Err != nil {
		var err error
		if latest, err = s.After(ctx, latest.Number); err != nil {
			return nil, err
		}
	}
	if latest.Err != nil {
		return nil, latest.Err
	}
	return latest, nil
}

// loop lists until nobody has looked for a while.
func (s *Source) loop() {
	for {
		began := time.Now()
		records, unreadable, err := s.list()
		if s.closing.Err() != nil {
			return
		}
		s.owners.fill(records)
		took := time.Since(began)
		wait := max(s.refresh, (workShare-1)*took)
		if err != nil {
			wait = max(s.refresh, min(wait, maxBackoff))
		}
		if !s.publish(records, unreadable, err, wait+max(patience, 2*took)) {
			return
		}
		if err == nil && s.owners.look(s.closing, s.client, records) {
			records = slices.Clone(records) // readers have the published ones
			s.owners.fill(records)
			took = time.Since(began)
			wait = max(s.refresh, (workShare-1)*took)
			if !s.publish(records, unreadable, nil, wait+max(patience, 2*took)) {
				return
			}
		}
		select {
		case <-time.After(wait):
		case <-s.closing.Done():
			return
		}
	}
}

// publish makes a listing the latest. It reports whether to go on.
func (s *Source) publish(records []driver.Record, unreadable []string, err error, overdue time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	next := &Snapshot{Number: s.latest.Number + 1, At: now, Records: records, Unreadable: unreadable, Err: err, Overdue: now.Add(overdue)}
	if err != nil {
		next.Records, next.Unreadable, next.At = s.latest.Records, s.latest.Unreadable, s.latest.At
	}
	s.latest = next
	close(s.changed)
	s.changed = make(chan struct{})
	s.running = s.readers > 0 || time.Since(s.left) < linger
	return s.running
}

func (s *Source) list() (records []driver.Record, unreadable []string, err error) {
	ctx, cancel := context.WithTimeout(s.closing, listTimeout)
	defer cancel()
	return List(ctx, s.client, s.prefix)
}

// List returns the locks whose names begin with prefix, by name and without data, and the names of those whose records
// cannot be read.
func List(ctx context.Context, client Client, prefix string) (records []driver.Record, unreadable []string, err error) {
	for record, err := range client.List(ctx, prefix) {
		switch {
		case err == nil:
			record.Data = nil
			records = append(records, record)
		case record.Name == "":
			return nil, nil, err
		default:
			unreadable = append(unreadable, record.Name)
		}
	}
	slices.SortFunc(records, func(a, b driver.Record) int { return strings.Compare(a.Name, b.Name) })
	return records, unreadable, nil
}

package web

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
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
)

// snapshot is what one listing has shown. It never changes.
type snapshot struct {
	number     int
	at         time.Time
	records    []driver.Record // by name
	unreadable []string        // names of records that cannot be read
	err        error           // the listing failed; the rest is from the last one that did not
}

// source lists the locks again and again while somebody looks at them.
type source struct {
	client  *holdfast.Client
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
	latest  *snapshot
	changed chan struct{} // closed when there is a later snapshot
}

func newSource(client *holdfast.Client, prefix string, refresh time.Duration) *source {
	s := &source{client: client, prefix: prefix, refresh: refresh, latest: &snapshot{}, changed: make(chan struct{})}
	s.closing, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *source) close() {
	s.mu.Lock()
	s.stop() // from here on no loop begins
	s.mu.Unlock()
	s.loops.Wait()
}

// enter counts a reader, and starts to list if nobody has looked before. The reader wants
// snapshots after the returned number: earlier ones are old.
func (s *source) enter() (number int, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers++
	if !s.running && s.closing.Err() == nil {
		s.running = true
		s.loops.Go(s.loop)
		number = s.latest.number
	}
	return number, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readers--
		s.left = time.Now()
	}
}

// age is the time since the backend answered, in milliseconds.
func (s *snapshot) age() int64 { return time.Since(s.at).Milliseconds() }

// last returns the latest snapshot.
func (s *source) last() *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// after waits for a snapshot with a higher number.
func (s *source) after(ctx context.Context, number int) (*snapshot, error) {
	for {
		s.mu.Lock()
		latest, changed := s.latest, s.changed
		s.mu.Unlock()
		if latest.number > number {
			return latest, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closing.Done():
			return nil, holdfast.ErrClosed
		}
	}
}

// next returns the latest snapshot if it is fresh, and else waits for another one. The error is
// that of the listing.
func (s *source) next(ctx context.Context) (*snapshot, error) {
	_, leave := s.enter()
	defer leave()
	latest := s.last()
	if latest.number == 0 || time.Since(latest.at) > 2*s.refresh || latest.err != nil {
		var err error
		if latest, err = s.after(ctx, latest.number); err != nil {
			return nil, err
		}
	}
	if latest.err != nil {
		return nil, latest.err
	}
	return latest, nil
}

// loop lists until nobody has looked for a while.
func (s *source) loop() {
	for {
		began := time.Now()
		records, unreadable, err := s.list()
		if s.closing.Err() != nil {
			return
		}
		s.owners.fill(records)
		if !s.publish(records, unreadable, err) {
			return
		}
		if err == nil && s.owners.look(s.closing, s.client, records) {
			records = slices.Clone(records) // readers have the published ones
			s.owners.fill(records)
			if !s.publish(records, unreadable, nil) {
				return
			}
		}
		took := time.Since(began)
		select {
		case <-time.After(max(s.refresh, (workShare-1)*took)):
		case <-s.closing.Done():
			return
		}
	}
}

// publish makes a listing the latest. It reports whether to go on.
func (s *source) publish(records []driver.Record, unreadable []string, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &snapshot{number: s.latest.number + 1, at: time.Now(), records: records, unreadable: unreadable, err: err}
	if err != nil {
		next.records, next.unreadable, next.at = s.latest.records, s.latest.unreadable, s.latest.at
	}
	s.latest = next
	close(s.changed)
	s.changed = make(chan struct{})
	s.running = s.readers > 0 || time.Since(s.left) < linger
	return s.running
}

func (s *source) list() (records []driver.Record, unreadable []string, err error) {
	ctx, cancel := context.WithTimeout(s.closing, listTimeout)
	defer cancel()
	for record, err := range s.client.List(ctx, s.prefix) {
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

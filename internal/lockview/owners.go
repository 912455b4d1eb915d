package lockview

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// ownerAge is how long an owner that was read stays shown. On Azure the next holder has the
	// lease a moment before its name is on record: an owner that stayed would be the wrong one.
	ownerAge = 10 * time.Second
	// mostLookups and lookupsAtOnce bound the requests after one listing.
	mostLookups   = 200
	lookupsAtOnce = 8
)

// owners finds the holders of locks of which a listing shows only that they are held. On Azure Blob
// Storage those are the locks whose holder has not written its record yet: the listing itself reads the
// owners of all others, with one request for each. It asks only for locks that a reader sees.
type owners struct {
	mu     sync.Mutex
	wanted map[string]bool
	known  map[string]sighting
}

// sighting is a record as the backend described it when it was asked for this lock alone.
type sighting struct {
	record driver.Record
	at     time.Time
}

// Want asks for the owners of locks that have none, or one that is read again from time to time.
func (s *Source) Want(records ...*driver.Record) {
	s.owners.mu.Lock()
	defer s.owners.mu.Unlock()
	for _, r := range records {
		if r.State == driver.StateHeld {
			s.owners.want(r.Name, r.Owner)
		}
	}
}

// WantAll is like Want, for all locks of a snapshot.
func (s *Source) WantAll(of *Snapshot) {
	s.owners.mu.Lock()
	defer s.owners.mu.Unlock()
	for i := range of.Records {
		if r := &of.Records[i]; r.State == driver.StateHeld {
			s.owners.want(r.Name, r.Owner)
		}
	}
}

func (o *owners) want(name, owner string) {
	if _, looked := o.known[name]; owner != "" && !looked {
		return
	}
	if o.wanted == nil {
		o.wanted = map[string]bool{}
	}
	o.wanted[name] = true
}

// fill completes records with what is known. A record of a later grant has another token.
func (o *owners) fill(records []driver.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) == 0 {
		return
	}
	for i := range records {
		r := &records[i]
		if r.State != driver.StateHeld || r.Owner != "" {
			continue
		}
		if k, ok := o.known[r.Name]; ok && k.record.Token == r.Token && time.Since(k.at) < ownerAge {
			r.Owner, r.TTL, r.AcquiredAt = k.record.Owner, k.record.TTL, k.record.AcquiredAt
		}
	}
}

// look reads the wanted records one by one. It reports whether that has shown an owner.
func (o *owners) look(ctx context.Context, client Client, records []driver.Record) bool {
	names := o.take(records)
	if len(names) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	queue := make(chan string, len(names))
	for _, name := range names {
		queue <- name
	}
	close(queue)
	var workers sync.WaitGroup
	for range min(lookupsAtOnce, len(names)) {
		workers.Go(func() {
			for name := range queue {
				record, err := client.Inspect(ctx, name)
				if err != nil { // it stays unknown, and wanted by the next reader
					continue
				}
				record.Data, record.History = nil, nil
				o.mu.Lock()
				o.known[name] = sighting{record, time.Now()}
				o.mu.Unlock()
			}
		})
	}
	workers.Wait()
	return true
}

// take returns the names to read now, and forgets what is old.
func (o *owners) take(records []driver.Record) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, k := range o.known {
		if time.Since(k.at) >= ownerAge {
			delete(o.known, name)
		}
	}
	if len(o.wanted) == 0 {
		return nil
	}
	if o.known == nil {
		o.known = map[string]sighting{}
	}
	var names []string
	for i := range records {
		r := &records[i]
		if r.State != driver.StateHeld || !o.wanted[r.Name] {
			continue
		}
		if k, ok := o.known[r.Name]; ok && k.record.Token == r.Token && time.Since(k.at) < ownerAge/2 {
			continue
		}
		if names = append(names, r.Name); len(names) == mostLookups {
			break
		}
	}
	clear(o.wanted)
	return names
}

package file

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A reader that has died stays in the record until the next grant. The release of the last one that lives wakes the waiter.
func TestReleaseBesideADeadReaderWakes(t *testing.T) {
	t.Parallel()
	for way, open := range map[string]openFunc{"this system's way": openWatch, "fsnotify": openSystemWatch} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			holder, _, _ := watchedLocker(t, t.TempDir())
			l, _, _ := watchedLocker(t, holder.dir)
			l.watcher.open = open
			reads := request("living")
			reads.Mode, reads.Data = driver.Shared, nil
			living := mustAcquire(t, holder, reads)
			reads.ID, reads.TTL = driver.NewLeaseID("dead"), 10*time.Millisecond
			mustAcquire(t, holder, reads)
			rec, err := l.readRecord(t.Context(), filepath.Join(l.dir, stem(living.Name)+".json"))
			if err != nil || len(rec.Readers) != 2 {
				t.Fatal(rec.Readers, err)
			}
			_, calls, stop := watchName(l, living.Name)
			defer stop()
			awaitServed(t, l, "later")
			if _, err := holder.Renew(t.Context(), living); err != nil { // by fsnotify the first change of a shared lock wakes
				t.Fatal(err)
			}
			eventually(t, "the dead one's lease has expired", func() bool {
				now, err := l.now()
				return err == nil && now.Elapsed >= rec.Readers[1].Expires
			})
			awaitServed(t, l, "later-still")
			before := calls.Load()
			mustRelease(t, holder, living)
			awaitServed(t, l, "last")
			if calls.Load() == before {
				t.Error("the lock is free, and its waiter was not woken")
			}
		})
	}
}

// Readers have a lock, then a writer for less time than an event takes, then other readers. By fsnotify one event shows them, as for a
// lock that stayed shared. The reader who has waited for the writer is woken, and not for each reader who joins.
func TestReadersAfterAShortWriterWake(t *testing.T) {
	t.Parallel()
	holder, _, _ := watchedLocker(t, t.TempDir())
	l, _, _ := watchedLocker(t, holder.dir)
	name := request("writer").Name
	l.watcher.open = func(string, changedFunc, func()) (*folderWatch, error) { // no events but those of this test
		return &folderWatch{ended: make(chan error, 1), close: func() {}}, nil
	}
	woken, calls, stop := watchName(l, name)
	defer stop()
	awaitWake(t, woken, "the watch is in effect")
	shared := map[string]uint64{}
	read := func(id string) driver.Lease {
		req := request(id)
		req.Mode, req.Data = driver.Shared, nil
		return mustAcquire(t, holder, req)
	}
	release := func(lease driver.Lease) {
		mustRelease(t, holder, lease)
	}
	event := func(what string, wakes bool) {
		before := calls.Load()
		l.watcher.fileChanged(stem(name)+".json", false, shared)
		if woken := calls.Load() > before; woken != wakes {
			t.Errorf("%s: woken %v, want %v", what, woken, wakes)
		}
	}
	one := read("one")
	event("the first reader", true)
	two := read("two")
	event("another joins", false)
	release(one)
	event("the first has gone", false)
	release(two)
	release(mustAcquire(t, holder, request("writer")))
	read("three")
	event("another reads after a short writer", true)
	read("four")
	event("another joins that one", false)
}

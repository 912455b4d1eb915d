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
			if err := holder.Release(t.Context(), living); err != nil {
				t.Fatal(err)
			}
			awaitServed(t, l, "last")
			if calls.Load() == before {
				t.Error("the lock is free, and its waiter was not woken")
			}
		})
	}
}

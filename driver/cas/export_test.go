package cas

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// Racers is how many writes of a probe race.
const Racers = racers

// SetClock replaces the clock of a Locker's process. Nothing must use the Locker so far.
func (l *Locker) SetClock(now func() time.Time) { l.now, l.began = now, now() }

// ExpiresAt returns when the lease of a value ends, by the store's clock.
func ExpiresAt(name string, data []byte) (time.Duration, error) {
	rec, err := decode(lockrecord.Key(name), name, data, driver.ByServer)
	return rec.Expires, err
}

// Watched returns how many names are watched, or were and may not be again yet.
func (l *Locker) Watched() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

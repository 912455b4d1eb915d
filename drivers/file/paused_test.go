package file

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// A process may be paused between reading the clock and reading the record, while the holder renews
// its lease. The lock still counts as held.
func TestPausedBetweenClockAndRecord(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*testing.T, *Locker, driver.Lease){
		"WriteData": func(t *testing.T, l *Locker, lease driver.Lease) {
			if err := l.WriteData(t.Context(), lease, []byte("new"), driver.DataRevision{Token: lease.Token}); err != nil {
				t.Errorf("error %v", err)
			}
		},
		"Inspect": func(t *testing.T, l *Locker, _ driver.Lease) {
			if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateHeld {
				t.Errorf("%+v, error %v; want held", r, err)
			}
		},
		"List": func(t *testing.T, l *Locker, _ driver.Lease) {
			for r, err := range l.List(t.Context(), "") {
				if err != nil || r.State != driver.StateHeld {
					t.Errorf("%+v, error %v; want held", r, err)
				}
			}
		},
		"TryAcquire": func(t *testing.T, l *Locker, lease driver.Lease) {
			if again, err := l.TryAcquire(t.Context(), request("second")); err == nil {
				t.Errorf("a second lease: %v beside %v", again, lease)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, d := t.TempDir(), newFakeClock()
			holder := newTestLocker(t, dir, d.clock())
			lease := mustAcquire(t, holder, request("first"))
			renewals := func() {
				for range 3 {
					d.advance(lease.TTL / 2)
					if _, err := holder.Renew(context.WithoutCancel(t.Context()), lease); err != nil {
						t.Error(err)
					}
				}
			}
			paused := d.clock()
			var before, after sync.Once
			paused.now = func() (lockstate.Moment, error) {
				before.Do(renewals)
				now, err := d.read()
				after.Do(renewals)
				return now, err
			}
			do(t, newTestLocker(t, dir, paused), lease)
		})
	}
}

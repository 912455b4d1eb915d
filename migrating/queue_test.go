package migrating

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Waking is in effect while it is so for both locks.
func TestWakingInEffect(t *testing.T) {
	const old, fresh = 0, 1
	var (
		turn    = driver.Wakeup{}
		missed  = driver.Wakeup{Kind: driver.WakingBegan}
		nothing = driver.Wakeup{Kind: driver.WakingBegan, Ago: time.Minute}
		ended   = driver.Wakeup{Kind: driver.WakingEnded}
	)
	type call struct {
		queue int
		up    driver.Wakeup
	}
	for what, test := range map[string]struct {
		calls []call
		want  []driver.Wakeup
	}{
		"both":                 {[]call{{old, nothing}, {fresh, nothing}}, []driver.Wakeup{nothing}},
		"one missed something": {[]call{{old, missed}, {fresh, nothing}}, []driver.Wakeup{missed}},
		"a turn before":        {[]call{{old, turn}}, []driver.Wakeup{turn}},
		"one cannot":           {[]call{{old, nothing}, {fresh, ended}}, nil},
		"one ends":             {[]call{{old, nothing}, {fresh, nothing}, {old, ended}}, []driver.Wakeup{nothing, ended}},
		"one ends, the other had a gap": {[]call{{old, nothing}, {fresh, nothing}, {old, ended}, {fresh, missed}},
			[]driver.Wakeup{nothing, ended}},
		"one ends, a turn of the other": {[]call{{old, nothing}, {fresh, nothing}, {old, ended}, {fresh, turn}},
			[]driver.Wakeup{nothing, ended, turn}},
		"both end": {[]call{{old, nothing}, {fresh, nothing}, {old, ended}, {fresh, ended}},
			[]driver.Wakeup{nothing, ended}},
		"one ends and comes back": {[]call{{old, nothing}, {fresh, nothing}, {old, ended}, {old, nothing}},
			[]driver.Wakeup{nothing, ended, missed}},
		"one that could not comes at last": {[]call{{old, nothing}, {fresh, ended}, {fresh, nothing}}, []driver.Wakeup{nothing}},
	} {
		var got []driver.Wakeup
		w := newWaiting(func(up driver.Wakeup) { got = append(got, up) })
		from := []func(driver.Wakeup){w.from(), w.from()}
		for _, c := range test.calls {
			from[c.queue](c.up)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", what, got, test.want)
		}
	}
}

// The end of waking in one queue, while its beginning in both is being reported, is reported after that.
func TestWakingEndsWhileItsBeginningIsReported(t *testing.T) {
	var got []driver.WakeupKind
	var from []func(driver.Wakeup)
	ended := make(chan struct{})
	w := newWaiting(func(up driver.Wakeup) {
		if up.Kind == driver.WakingBegan {
			go func() {
				from[1](driver.Wakeup{Kind: driver.WakingEnded})
				close(ended)
			}()
			<-ended
		}
		got = append(got, up.Kind)
	})
	from = []func(driver.Wakeup){w.from(), w.from()}
	from[0](driver.Wakeup{Kind: driver.WakingBegan})
	from[1](driver.Wakeup{Kind: driver.WakingBegan})
	if want := []driver.WakeupKind{driver.WakingBegan, driver.WakingEnded}; !slices.Equal(got, want) {
		t.Errorf("reported %v, want %v", got, want)
	}
}

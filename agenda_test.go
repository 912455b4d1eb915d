package holdfast

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Calls that return at the very moment when the patience with them is over, as after a
// pause of the whole process: each place is given back once, to one.
func TestAgendaCallReturnsAsPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience, each = time.Second, 3
		start := time.Now()
		var workers tasks
		var done atomic.Int64
		const agendas = 50
		for range agendas {
			a := newAgenda(func() time.Duration { return time.Since(start) }, 1, patience, &workers)
			for range each {
				e := &entry{do: func() { time.Sleep(patience); done.Add(1) }}
				a.set(e, 0, false)
			}
		}
		time.Sleep((each + 1) * patience)
		synctest.Wait()
		if got := done.Load(); got != agendas*each {
			t.Errorf("%d of %d calls were made", got, agendas*each)
		}
	})
}

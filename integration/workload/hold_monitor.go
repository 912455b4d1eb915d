//go:build unix

package workload

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/history"
)

const (
	// checkInterval is how often a monitor checks its hold. recordInterval is how often it
	// records the result, so that a SIGKILL loses little.
	checkInterval  = 2 * time.Millisecond
	recordInterval = 100 * time.Millisecond
	// stallCheckInterval is how often a process checks whether it gets to run.
	stallCheckInterval = 10 * time.Millisecond
)

// holdMonitor records until when a hold was live. It reads the clock before each check, so its
// records are true however slowly it runs.
type holdMonitor struct {
	rec          *history.Recorder
	id           uint64
	hold         *holdfast.Hold
	at, errNil   time.Duration // the latest times at which the context was live, and Hold.Err nil
	stop         chan struct{}
	done         sync.WaitGroup
	lastRecorded time.Duration
}

// monitorHold checks the hold once, and then starts a monitor. The function that it returns stops
// the monitor and waits for it.
func monitorHold(rec *history.Recorder, id uint64, hold *holdfast.Hold) (stopMonitor func()) {
	m := &holdMonitor{rec: rec, id: id, hold: hold, stop: make(chan struct{})}
	if m.check() {
		m.record()
		m.done.Go(m.run)
	}
	return func() {
		close(m.stop)
		m.done.Wait()
	}
}

func (m *holdMonitor) run() {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	defer m.record()
	for m.check() {
		if m.at-m.lastRecorded > recordInterval {
			m.record()
		}
		select {
		case <-tick.C:
		case <-m.stop:
			return
		}
	}
}

// check checks the hold once and reports whether the context is live.
func (m *holdMonitor) check() bool {
	now := history.Now()
	if m.hold.Context().Err() != nil {
		return false
	}
	m.at = now
	if m.hold.Err() == nil {
		m.errNil = now
	}
	return true
}

func (m *holdMonitor) record() {
	m.lastRecorded = m.at
	m.rec.Record(history.Line{Kind: history.Live, At: m.at, ID: m.id, Token: m.hold.Token(), ErrNil: m.errNil})
}

// recordStalls records each time that this process did not get to run for longer than limit.
func recordStalls(ctx context.Context, rec *history.Recorder, limit time.Duration) {
	tick := time.NewTicker(stallCheckInterval)
	defer tick.Stop()
	last := history.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := history.Now()
		if now-last > limit {
			rec.Record(history.Line{Kind: history.Stall, At: last, Until: now})
		}
		last = now
	}
}

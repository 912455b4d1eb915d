package engine

import (
	"time"

	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/internal/event"
)

// NoteWaiting logs that the caller waits, if that is due.
func (a *Acquisition) NoteWaiting() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiter.Notice(a.client.now(), func(owner string, token uint64, waited time.Duration) bool {
		at := time.Now()
		_, report := a.client.notices.Note("", a.name, at)
		if report {
			a.client.observers.log(event.Event{Type: event.Waiting, Name: a.name, Owner: owner, Token: token, Time: at,
				Waited: waited, Leader: a.policy.Role == telemetry.Leader})
		}
		return report
	})
}

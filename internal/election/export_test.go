package election

import "github.com/holdfast-go/holdfast/internal/engine"

// StepDownBy steps down with end in place of the hold's Cancel. end may wait for the release.
func (r *Runner) StepDownBy(cause error, end func(h *engine.Hold, released <-chan struct{})) {
	l := r.leadership.Load()
	l.endHold(cause, l.hold.Err, func(error) { end(l.hold, l.released) })
}

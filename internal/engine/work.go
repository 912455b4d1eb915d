package engine

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
	"github.com/holdfast-go/holdfast/internal/timing"
)

// CallUntilDone calls fn with the hold's context until it returns nil or the hold has ended. An error
// before that is reported, and fn is called again after a backoff.
func (h *Hold) CallUntilDone(fn func(ctx context.Context) error, restart settings.Backoff) {
	ctx, c := h.Context(), h.client
	for failures := 0; h.Err() == nil; failures++ {
		began := c.now()
		err := fn(ctx)
		if h.ReportTask(err); err == nil || h.Err() != nil {
			return
		}
		if c.now()-began > restart.Max {
			failures = 0
		}
		timer := time.NewTimer(timing.Backoff(failures, restart.Initial, restart.Max))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// ReportTask reports the error that the hold's function has returned, unless it says only that the hold
// has ended.
func (h *Hold) ReportTask(err error) {
	ended := h.Err()
	if err == nil || ended != nil && (errors.Is(err, context.Canceled) || errors.Is(err, ended)) {
		return
	}
	h.Report(event.Error, "task", err)
}

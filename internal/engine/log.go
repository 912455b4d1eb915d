package engine

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// maxLostNames bounds how many names a log remembers as lost.
const maxLostNames = 10_000

// logTo returns an observer that logs events. Losses and failures are warnings, overruns errors.
// Acquiring a lock again after its loss is info, so that both show at the default level; elections
// and step-downs are info too. All other successes are debug.
func logTo(logger *slog.Logger) func(event.Event) {
	lost := map[string]struct{}{} // an observer is called for one event at a time
	return func(e event.Event) {
		level, message := logLine(e)
		switch e.Type {
		case event.Lost:
			if len(lost) >= maxLostNames {
				removeAny(lost)
			}
			lost[e.Name] = struct{}{}
		case event.Acquired:
			if _, again := lost[e.Name]; again {
				delete(lost, e.Name)
				level = slog.LevelInfo
				message += " again after a loss"
			}
		}
		logger.LogAttrs(context.Background(), level, "holdfast: "+message, logAttrs(e)...)
	}
}

// removeAny removes one name. Another process may hold its lock forever, so it must not stay.
func removeAny(names map[string]struct{}) {
	for name := range names {
		delete(names, name)
		return
	}
}

// logLine returns an event's level and its message, which is understood without the attributes.
func logLine(e event.Event) (slog.Level, string) {
	switch e.Type {
	case event.Acquired:
		if e.Leader {
			return slog.LevelInfo, "elected leader"
		}
		return slog.LevelDebug, "lock acquired"
	case event.Released:
		if e.Leader {
			return slog.LevelDebug, "leadership released"
		}
		return slog.LevelDebug, "lock released"
	case event.Lost:
		if e.Leader {
			return slog.LevelWarn, "leadership lost"
		}
		return slog.LevelWarn, "lease lost"
	case event.Overrun:
		return slog.LevelError, "work still running after its lease ended"
	case event.HolderSeen:
		if e.Own {
			return slog.LevelInfo, "waiting for a lock that this process itself holds"
		}
		return slog.LevelDebug, "waiting for a lock that another holds"
	case event.SteppedDown:
		return slog.LevelInfo, "stepped down as leader"
	default:
		return slog.LevelWarn, failureLine(e.Op, e.Err)
	}
}

// failureLine returns the message of an event of type Error.
func failureLine(op string, err error) string {
	switch op {
	case "acquire":
		return "acquire failed; a waiting caller retries" // TryLock does not
	case "renew":
		return "renewal failed, retrying"
	case "release":
		if driver.OutcomeKnown(err) {
			return "release failed"
		}
		return "release failed, retrying until the lease expires"
	case "inspect":
		return "reading the lock's record failed, retrying"
	case "clean up":
		return "cleanup of a request in doubt failed, retrying until its lease expires"
	default:
		return op + " failed" // "health check", "task"
	}
}

func logAttrs(e event.Event) []slog.Attr {
	attrs := []slog.Attr{slog.String("lock", e.Name)}
	if e.Owner != "" {
		attrs = append(attrs, slog.String("owner", e.Owner))
	}
	if e.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", e.Token))
	}
	if e.Op != "" {
		attrs = append(attrs, slog.String("op", e.Op))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	if e.Dropped != 0 {
		attrs = append(attrs, slog.Int("dropped", e.Dropped))
	}
	return attrs
}

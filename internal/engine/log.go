package engine

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// lossesKept bounds the names that a log remembers to be lost.
const lossesKept = 10_000

// logTo writes events to a logger. A loss and a failure are warnings, an overrun is an
// error. What ends a loss is info, so that a reader of the default level sees both, and
// so are an election and a step-down; everything else that goes well is debug.
//
// It is called for one event at a time.
func logTo(logger *slog.Logger) func(event.Event) {
	lost := map[string]struct{}{}
	return func(e event.Event) {
		level, message := logLine(e)
		switch e.Type {
		case event.Lost:
			if len(lost) >= lossesKept {
				forgetAny(lost)
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

// forgetAny drops one name: it may be held by another process for good.
func forgetAny(names map[string]struct{}) {
	for name := range names {
		delete(names, name)
		return
	}
}

// logLine is an event's level, and its message, which can be understood without the
// attributes.
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

// failureLine is the message of an EventError.
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

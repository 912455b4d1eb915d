package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// maxLostNames bounds how many names a log remembers as lost.
const maxLostNames = 10_000

// logTo returns an observer that logs events. Losses and failures are warnings, overruns errors.
// Acquiring a lock again after its loss is info, so that both show at the default level; elections
// and step-downs are info too. All other successes are debug. A failure that lasts is logged at growing
// distances, with how often it has happened.
func logTo(logger *slog.Logger) func(event.Event) {
	var failures event.Repeats
	lost := map[string]struct{}{} // an observer is called for one event at a time
	dropped := 0                  // events that no line has counted yet
	return func(e event.Event) {
		level, message := logLine(e)
		var attrs []slog.Attr // beside the event's own, which cost more than all else here
		dropped += e.Dropped
		switch e.Type {
		case event.Error:
			count, report := failures.Note(e.Op, e.Name, e.Time)
			if !report {
				return
			}
			if count.Times > 1 {
				attrs = append(attrs, slog.Int("times", count.Times), slog.String("in", driver.FormatDuration(count.In.Round(100*time.Millisecond))))
			}
			if count.Many {
				attrs = append(attrs, slog.Bool("others", true)) // other locks are counted, too
			}
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
		if !logger.Enabled(context.Background(), level) {
			return
		}
		if dropped != 0 {
			attrs = append(attrs, slog.Int("dropped", dropped))
			dropped = 0
		}
		logger.LogAttrs(context.Background(), level, "holdfast: "+message, append(logAttrs(e), attrs...)...)
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
	case event.Waiting:
		if e.Leader {
			return slog.LevelInfo, "campaigning, another instance leads"
		}
		return slog.LevelInfo, "waiting for a lock that another holds"
	case event.SteppedDown:
		return slog.LevelInfo, "stepped down as leader"
	default:
		return slog.LevelWarn, failureLine(e.Op, e.Err)
	}
}

// opWake is the Op of an event about a wake-up.
const opWake = "wake"

// failureLine returns the message of an event of type Error.
func failureLine(op string, err error) string {
	switch op {
	case "acquire":
		return "acquire failed; a waiting caller retries" // TryLock does not
	case "renew":
		return "renewal failed, retrying"
	case "release":
		if driver.OutcomeKnown(err) && !driver.Lasting(err) {
			return "release failed"
		}
		return "release failed, retrying until the lease expires"
	case "inspect":
		return "reading the lock's record failed, retrying"
	case opWake:
		return "the driver reports an unknown kind of wake-up, polling"
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
	if e.Shared {
		attrs = append(attrs, slog.String("mode", driver.Shared.String()))
	}
	if e.Op != "" {
		attrs = append(attrs, slog.String("op", e.Op))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	if e.Waited != 0 {
		attrs = append(attrs, slog.String("waited", driver.FormatDuration(e.Waited.Round(100*time.Millisecond))))
	}
	return attrs
}

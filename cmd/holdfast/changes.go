package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// changeWriter writes one line for each change of a lock. It is safe for concurrent use.
type changeWriter struct {
	w      io.Writer
	asJSON bool

	mu sync.Mutex
}

// changeJSON is the JSON form of a change: the lock as it is now, and when the change was seen.
type changeJSON struct {
	Time   time.Time `json:"time"`   // this machine's wall clock
	Change string    `json:"change"` // "held", "free", "broken", "removed" or "unknown"
	describe.LockJSON
}

// write reports a lock as it is now.
func (c *changeWriter) write(r holdfast.Record) error {
	return c.line(lockview.State(&r), r)
}

// removed reports that the record of a lock is gone.
func (c *changeWriter) removed(name string) error {
	return c.line("removed", holdfast.Record{Name: name, State: driver.StateFree})
}

func (c *changeWriter) line(kind string, r holdfast.Record) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asJSON {
		return writeJSON(c.w, changeJSON{Time: now, Change: kind, LockJSON: describe.JSON(r)})
	}
	var text string
	switch {
	case kind == "removed":
		text = kind
	case r.State == driver.StateFree && r.Token == 0:
		text = "free"
	case r.State == driver.StateFree:
		text = fmt.Sprintf("free, last held by %s (token %s)", describe.Owner(r), describe.Token(r))
	case r.State == driver.StateHeld:
		text = "held by " + describe.Holder(r)
		if r.Broken {
			text += ", broken: renewals are refused"
		}
	default:
		text = kind
	}
	_, err := fmt.Fprintf(c.w, "%s  %s  %s\n", now.Format("2006-01-02 15:04:05.000"), format.Text(r.Name), text)
	return err
}

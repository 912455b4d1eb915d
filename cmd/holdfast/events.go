package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/event"
)

// eventLogger logs the library's events: the holder that the lock waits for, and failed
// calls. What the command itself does is logged by runner and supervisor.
type eventLogger struct {
	log      *messages.Log
	backend  string // in the form for messages
	answered func() // called before each message, since the backend has answered; may be nil
	try      bool   // --try: nothing is retried
	client   atomic.Pointer[holdfast.Client]
	heard    atomic.Bool                    // the backend has answered a request for a lock
	waiting  atomic.Bool                    // holdfast waits for the lock; only then its holder is reported
	running  atomic.Pointer[runningCommand] // nil if the command does not run

	failures event.Repeats
}

// runningCommand is the command while it runs under a hold.
type runningCommand struct {
	tokens []uint64 // of all locks
	child  interface {
		StoppedInTime(limit time.Duration) bool // whether its guardian has stopped it before the lease expired
	}
}

// lastWordTimeout bounds the wait for what the guardian reports.
const lastWordTimeout = 100 * time.Millisecond

// overran reports whether the command may have run after the lease of a hold had expired. While
// holdfast was stopped, the guardian may have stopped the command in time, which holdfast has not
// noticed yet. If only --min-hold kept the lock, the command had ended.
func (c *runningCommand) overran(token uint64) bool {
	return c != nil && slices.Contains(c.tokens, token) && !c.child.StoppedInTime(lastWordTimeout)
}

// observe is the library's observer.
func (l *eventLogger) observe(e holdfast.Event) {
	switch e.Type {
	case holdfast.EventHolderSeen:
		l.logHolder(e)
	case holdfast.EventError:
		if e.Op == "clean up" { // perhaps no lock was acquired; if one was, it expires
			l.log.Verbosef("cannot clean up after a request for %q whose outcome is unknown, retrying: %v", e.Name, e.Err)
			return
		}
		if e.Op == "acquire" && l.try { // run returns this error
			return
		}
		l.logFailure(e, time.Now())
	case holdfast.EventOverrun:
		if !l.running.Load().overran(e.Token) {
			return
		}
		l.log.Errorf("OVERRUN: the lease of %q has expired, and the command may still be running: another may hold the lock now", e.Name)
	}
}

// heldByParent reports whether a grant is that of the holdfast run that started this one.
func heldByParent(name string, token uint64) bool {
	if os.Getenv(envName) == name && os.Getenv(envToken) == strconv.FormatUint(token, 10) {
		return token != 0
	}
	var all map[string]uint64
	return json.Unmarshal([]byte(os.Getenv(envTokens)), &all) == nil && token != 0 && all[name] == token
}

func (l *eventLogger) reportAnswered() {
	if l.answered != nil {
		l.answered()
	}
}

// logHolder logs which holder the lock waits for, with details from the lock's record.
func (l *eventLogger) logHolder(e holdfast.Event) {
	record := holdfast.Record{Name: e.Name, Owner: e.Owner, Token: e.Token}
	if client := l.client.Load(); client != nil {
		current, err := client.Inspect(context.Background(), e.Name)
		if err == nil && current.State == driver.StateHeld && current.Token == e.Token {
			record = current
		}
	}
	if l.try || !l.waiting.Load() {
		return
	}
	l.reportAnswered()
	l.log.Infof("waiting for %s: held by %s, on %s", strconv.Quote(e.Name), describe.Holder(record), l.backend)
	if heldByParent(e.Name, e.Token) {
		l.log.Errorf("deadlock: %s is held by the holdfast run that started this one and waits for it to end", strconv.Quote(e.Name))
	}
}

// logFailure logs a failed call. A failure that lasts is logged at growing intervals.
func (l *eventLogger) logFailure(e holdfast.Event, now time.Time) {
	count, report := l.failures.Note(e.Op, e.Name, now)
	if !report {
		return
	}
	l.reportAnswered()
	times := ""
	if count.Times > 1 {
		times = " (" + strconv.Itoa(count.Times) + " times in " + format.Duration(count.In) + ")"
	}
	what := e.Op
	if e.Name != "" {
		what += " " + strconv.Quote(e.Name)
	}
	l.log.Errorf("cannot %s, retrying: %v%s", what, e.Err, times)
}

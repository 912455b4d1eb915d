package main

import (
	"context"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// repeatInterval is the longest time between two reports of a lasting failure.
const repeatInterval = time.Minute

// eventLogger logs the library's events: the holder that the lock waits for, and failed
// calls. What the command itself does is logged by runner and supervisor.
type eventLogger struct {
	log      *logger
	backend  string // in the form for messages
	answered func() // called before each message, since the backend has answered; may be nil
	try      bool   // --try: nothing is retried
	client   atomic.Pointer[holdfast.Client]
	waiting  atomic.Bool   // holdfast waits for the lock; only then its holder is reported
	running  atomic.Uint64 // the token under which the command runs; 0 if it does not run

	mu       sync.Mutex
	failing  string    // the operation that failed last
	since    time.Time // its first failure
	failures int       // since then
	next     time.Time // when to report it again
	interval time.Duration
}

// observe is the library's observer.
func (l *eventLogger) observe(e holdfast.Event) {
	switch e.Type {
	case holdfast.EventHolderSeen:
		l.logHolder(e)
	case holdfast.EventError:
		if e.Op == "clean up" { // perhaps no lock was acquired; if one was, it expires
			l.log.verbosef("cannot clean up after a request for %q whose outcome is unknown, retrying: %v", e.Name, e.Err)
			return
		}
		if e.Op == "acquire" && l.try { // run returns this error
			return
		}
		l.logFailure(e, time.Now())
	case holdfast.EventOverrun:
		if l.running.Load() != e.Token { // the command has ended; only --min-hold kept the lock
			return
		}
		l.log.errorf("OVERRUN: the lease of %q has expired, and the command may still be running: another may hold the lock now", e.Name)
	}
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
	l.log.infof("waiting for %s: held by %s, on %s", strconv.Quote(e.Name), describeHolder(record), l.backend)
	if e.Token != 0 && os.Getenv(envName) == e.Name && os.Getenv(envToken) == strconv.FormatUint(e.Token, 10) {
		l.log.errorf("deadlock: %s is held by the holdfast run that started this one and waits for it to end", strconv.Quote(e.Name))
	}
}

// logFailure logs a failed call. A failure that lasts is logged at growing intervals.
func (l *eventLogger) logFailure(e holdfast.Event, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Op != l.failing || now.Sub(l.next) > 2*repeatInterval {
		l.failing, l.since, l.failures, l.interval = e.Op, now, 0, time.Second
		l.next = now
	}
	l.failures++
	if now.Before(l.next) {
		return
	}
	l.reportAnswered()
	count := ""
	if l.failures > 1 {
		count = " (" + strconv.Itoa(l.failures) + " times in " + roundedDuration(now.Sub(l.since)) + ")"
	}
	l.log.errorf("cannot %s %q, retrying: %v%s", e.Op, e.Name, e.Err, count)
	l.interval = min(2*l.interval, repeatInterval)
	l.next = now.Add(l.interval)
}

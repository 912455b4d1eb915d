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

// repeatEvery is how often a lasting failure is told again, at most.
const repeatEvery = time.Minute

// news tells a person what happens to the lock: whom it waits for, and what fails.
// What the command itself does, run and supervisor tell.
type news struct {
	say     *reporter
	backend string // as it is shown
	heard   func() // is called with all news: the backend has answered; may be nil
	try     bool   // nothing is tried again
	client  atomic.Pointer[holdfast.Client]
	waiting atomic.Bool
	working atomic.Uint64 // the token under which the command works; 0 if it does not

	mu       sync.Mutex
	failing  string    // the operation whose failure was told last
	since    time.Time // its first time
	next     time.Time // when to tell it again
	interval time.Duration
	times    int
}

// wait says whether holdfast waits for the lock: only then it matters who holds it.
func (n *news) wait(on bool) { n.waiting.Store(on) }

// observe is the library's observer.
func (n *news) observe(e holdfast.Event) {
	switch e.Type {
	case holdfast.EventHolderSeen:
		n.holder(e)
	case holdfast.EventError:
		if e.Op == "clean up" { // of a lock that was perhaps never had; it frees itself
			n.say.detail("cannot make sure yet that no request holds %q: %v", e.Name, e.Err)
			return
		}
		if e.Op == "acquire" && n.try { // it is the error that run ends with
			return
		}
		n.failure(e, time.Now())
	case holdfast.EventOverrun:
		if n.working.Load() != e.Token { // its end was seen, only the lock was kept for longer
			return
		}
		n.say.error("OVERRUN: %q may be another's now, and holdfast has not seen the command's end", e.Name)
	}
}

func (n *news) answered() {
	if n.heard != nil {
		n.heard()
	}
}

// holder tells whom the lock waits for, with what the backend adds when asked.
func (n *news) holder(e holdfast.Event) {
	record := holdfast.Record{Name: e.Name, Owner: e.Owner, Token: e.Token}
	if client := n.client.Load(); client != nil {
		now, err := client.Inspect(context.Background(), e.Name)
		if err == nil && now.State == driver.StateHeld && now.Token == e.Token {
			record = now
		}
	}
	if n.try || !n.waiting.Load() {
		return
	}
	n.answered()
	n.say.info("waiting for %s: held by %s, on %s", strconv.Quote(e.Name), holderOf(record), n.backend)
	if e.Token != 0 && os.Getenv(envName) == e.Name && os.Getenv(envToken) == strconv.FormatUint(e.Token, 10) {
		n.say.error("deadlock: %s is held by the holdfast run that started this one, and that waits for this one to end", strconv.Quote(e.Name))
	}
}

// failure tells a failed call, a lasting one at growing intervals.
func (n *news) failure(e holdfast.Event, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.Op != n.failing || now.Sub(n.next) > 2*repeatEvery {
		n.failing, n.since, n.times, n.interval = e.Op, now, 0, time.Second
		n.next = now
	}
	n.times++
	if now.Before(n.next) {
		return
	}
	n.answered()
	again := ""
	if n.times > 1 {
		again = " (" + strconv.Itoa(n.times) + " times in " + seconds(now.Sub(n.since)) + ")"
	}
	n.say.error("cannot %s %q; trying again: %v%s", e.Op, e.Name, e.Err, again)
	n.interval = min(2*n.interval, repeatEvery)
	n.next = now.Add(n.interval)
}

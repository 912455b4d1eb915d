package locktest

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// Exclusive checks from outside that no two holds of a name are live at once, and that their
// tokens rise.
type Exclusive struct {
	tb    testing.TB
	mu    sync.Mutex
	last  map[string]context.Context
	Token map[string]uint64 // the last of each name
}

// NewExclusive makes a check; a violation is an error of the test.
func NewExclusive(tb testing.TB) *Exclusive {
	return &Exclusive{tb: tb, last: map[string]context.Context{}, Token: map[string]uint64{}}
}

// Enter records a new hold by its context: the one before must have ended by now.
func (e *Exclusive) Enter(ctx context.Context, name string, token uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if token <= e.Token[name] {
		e.tb.Errorf("%q: token %d came after %d", name, token, e.Token[name])
	}
	if last := e.last[name]; last != nil && last.Err() == nil && ctx.Err() == nil {
		e.tb.Errorf("%q: the holds with tokens %d and %d are live at once", name, e.Token[name], token)
	}
	e.last[name], e.Token[name] = ctx, token //nolint:fatcontext // it is another holder's, not a nested one
}

// EnterAgain is Enter for a task that may be one of several during one leadership.
func (e *Exclusive) EnterAgain(ctx context.Context, name string, token uint64) {
	e.mu.Lock()
	same := e.Token[name] == token
	e.mu.Unlock()
	if !same {
		e.Enter(ctx, name, token)
	}
}

// Pool checks from outside that the lock "pool" has at most n holders at once, each in a slot of
// its own whose tokens rise.
type Pool struct {
	*Exclusive
	n     int
	Slots map[string]bool // the names of the slots' records
}

// NewPool makes a check; a violation is an error of the test.
func NewPool(tb testing.TB, n int) *Pool {
	p := &Pool{Exclusive: NewExclusive(tb), n: n, Slots: map[string]bool{}}
	for i := range n {
		p.Slots[SlotRecord("pool", i)] = true
	}
	return p
}

// Enter records a new hold.
func (p *Pool) Enter(h *holdfast.Hold) {
	p.Exclusive.Enter(h.Context(), h.Name(), h.Token())
	if !p.Slots[h.Name()] || h.Name() != SlotRecord("pool", h.Slot()) {
		p.tb.Errorf("%q is not slot %d of %d", h.Name(), h.Slot(), p.n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	live := 0
	for _, ctx := range p.last {
		if ctx.Err() == nil {
			live++
		}
	}
	if live > p.n {
		p.tb.Errorf("%d live holders of %d slots", live, p.n)
	}
}

// Events is an observer that collects events.
type Events struct {
	Mu   sync.Mutex
	List []holdfast.Event
}

// Observe is for holdfast.WithObserver.
func (e *Events) Observe(ev holdfast.Event) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.List = append(e.List, ev)
}

// count counts the events that match.
func (e *Events) count(match func(holdfast.Event) bool) (n int) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, ev := range e.List {
		if match(ev) {
			n++
		}
	}
	return n
}

// Count counts the events of a type.
func (e *Events) Count(t holdfast.EventType) int {
	return e.count(func(ev holdfast.Event) bool { return ev.Type == t })
}

// Failures counts the reported failures of an operation.
func (e *Events) Failures(op string) int {
	return e.count(func(ev holdfast.Event) bool { return ev.Type == holdfast.EventError && ev.Op == op })
}

// Types lists the types of all events, in order.
func (e *Events) Types() (list []holdfast.EventType) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, ev := range e.List {
		list = append(list, ev.Type)
	}
	return list
}

// First returns the first event of a type, or a zero Event.
func (e *Events) First(typ holdfast.EventType) holdfast.Event {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, ev := range e.List {
		if ev.Type == typ {
			return ev
		}
	}
	return holdfast.Event{}
}

// Ledger is an observer that checks the order of each name's events: acquired, then
// released or lost.
type Ledger struct {
	tb testing.TB
	Events
	Held map[string]uint64 // tokens of the names that are held according to the events
	last map[string]uint64
}

// NewLedger makes a Ledger; a violation is an error of the test.
func NewLedger(tb testing.TB) *Ledger {
	return &Ledger{tb: tb, Held: map[string]uint64{}, last: map[string]uint64{}}
}

// Observe is for holdfast.WithObserver.
func (l *Ledger) Observe(e holdfast.Event) {
	l.Events.Observe(e)
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if e.Dropped != 0 {
		l.tb.Errorf("%d events were dropped before: %v", e.Dropped, e)
	}
	switch e.Type {
	case holdfast.EventAcquired:
		if l.Held[e.Name] != 0 || e.Token <= l.last[e.Name] {
			l.tb.Errorf("%v, after token %d, held with token %d", e, l.last[e.Name], l.Held[e.Name])
		}
		l.Held[e.Name], l.last[e.Name] = e.Token, e.Token
	case holdfast.EventReleased, holdfast.EventLost:
		if l.Held[e.Name] != e.Token {
			l.tb.Errorf("%v, but held with token %d", e, l.Held[e.Name])
		}
		delete(l.Held, e.Name)
	case holdfast.EventOverrun:
		l.tb.Errorf("%v", e)
	}
}

// Package namedlock takes locks for libraries that release a lock by its name, in another call
// than the one that took it, and perhaps with a context that has ended.
package namedlock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/event"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// Set takes locks of one Client. In a Set each name is taken by one caller at a time until that
// caller has unlocked it, also after its lease was lost. All methods are safe for concurrent use.
type Set struct {
	client  *holdfast.Client
	emit    engine.Emit
	minHold time.Duration
	opts    []holdfast.Option

	mu    sync.Mutex // never held across I/O
	names map[string]*name
}

// name is a name that is taken or waited for.
type name struct {
	taken chan struct{} // capacity 1: full while a caller has the name
	users int           // that have the name or wait for it; guarded by Set.mu
	held  *Held         // nil unless it is locked; guarded by Set.mu
}

// Held is one hold, from the grant to its release. A goroutine of its own is inside Client.Do
// meanwhile, so that the Client's Shutdown waits for Unlock before it releases the lock. All
// methods are safe for concurrent use.
type Held struct {
	set    *Set
	name   string
	entry  *name
	ctx    context.Context // of the hold
	since  time.Time
	passed bool          // the name belongs to another hold, which frees it; guarded by Set.mu
	unlock chan struct{} // closed by Unlock
	over   chan struct{} // closed when the lock is released, or was not granted
	err    error         // of Do; readable once over is closed
}

// New makes a Set. Each lock is kept for at least minHold after it was taken, also if it is
// unlocked sooner.
func New(client *holdfast.Client, minHold time.Duration, opts ...holdfast.Option) (*Set, error) {
	if client == nil {
		return nil, driver.Invalid("client", "nil", "a Client")
	}
	cfg, err := config(client, opts)
	if err != nil {
		return nil, err
	}
	s, err := cfg.Resolve(client.Info().Limits)
	if err != nil {
		return nil, err
	}
	return &Set{client: client, emit: bridge.Client(client).EmitTo(s.Observers), minHold: minHold, opts: opts, names: map[string]*name{}}, nil
}

// CheckOptions returns an error if an option is nil, or if the options or the Client's defaults ask for a shared lock or for slots:
// the libraries that the adapters serve know locks of one holder alone, and several instances would do the same work.
func CheckOptions(client *holdfast.Client, opts []holdfast.Option) error {
	_, err := config(client, opts)
	return err
}

// config applies options over the Client's defaults.
func config(client *holdfast.Client, opts []holdfast.Option) (settings.Config, error) {
	cfg := bridge.Client(client).Defaults()
	for _, o := range opts {
		if o == nil || !bridge.Apply(o, &cfg) {
			return cfg, settings.ErrNilOption
		}
	}
	const what = "the lock of an adapter"
	switch {
	case cfg.Shared:
		return cfg, settings.Settings{Mode: driver.Shared}.OnlyExclusive(what)
	case cfg.Slots != nil && *cfg.Slots > 1:
		return cfg, driver.Invalid("Slots", strconv.Itoa(*cfg.Slots), "1 for "+what)
	}
	return cfg, nil
}

// CheckMinHold returns an error unless a minimum hold is positive.
func CheckMinHold(d time.Duration) error {
	if d <= 0 {
		return driver.Invalid("minHold", driver.FormatDuration(d), "more than 0")
	}
	return nil
}

// CheckName returns an error if the backend does not allow the name.
func (s *Set) CheckName(n string) error {
	return driver.ValidateName(n, s.client.Info().Limits)
}

// Lock waits until it has the lock. ctx bounds only the waiting.
func (s *Set) Lock(ctx context.Context, n string) (*Held, error) {
	return s.lock(ctx, n, s.client.Do, true)
}

// TryLock makes one attempt. The error matches holdfast.ErrHeld if another holds the lock, in
// this process or elsewhere.
func (s *Set) TryLock(ctx context.Context, n string) (*Held, error) {
	return s.lock(ctx, n, s.client.TryDo, false)
}

// ReportRefusal reports an error of TryLock to the observers, for a caller that has nobody to return it to. It leaves out those that
// the Client has reported itself, and those that are no failures: another holds the lock, or the Client is shut down.
func (s *Set) ReportRefusal(n string, err error) {
	if driver.Lasting(err) || errors.Is(err, driver.ErrInvalid) {
		s.emit(event.Event{Type: event.Error, Name: n, Op: "acquire", Err: err, Time: time.Now()})
	}
}

type do func(ctx context.Context, name string, fn func(context.Context) error, opts ...holdfast.Option) error

func (s *Set) lock(ctx context.Context, n string, do do, wait bool) (*Held, error) {
	entry := s.join(n)
	if err := entry.take(ctx, n, wait); err != nil {
		s.leave(n, entry)
		return nil, err
	}
	h := newHeld(s, n, entry)
	if err := h.acquire(ctx, do); err != nil {
		return nil, err
	}
	s.mu.Lock()
	entry.held = h
	s.mu.Unlock()
	return h, nil
}

func newHeld(s *Set, n string, entry *name) *Held {
	return &Held{set: s, name: n, entry: entry, unlock: make(chan struct{}), over: make(chan struct{})}
}

// acquire returns when the hold is granted, or cannot be.
func (h *Held) acquire(ctx context.Context, do do) error {
	granted := make(chan struct{})
	// The caller's context counts until the grant. Its values count for the whole hold.
	waiting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	go func() {
		defer close(h.over)
		defer cancel(nil)
		defer detach()
		h.err = do(waiting, h.name, func(hold context.Context) error {
			if !detach() { // the caller's context ended first
				return driver.Errorf("lock %q: %w", h.name, ctx.Err())
			}
			h.ctx, h.since = hold, time.Now()
			close(granted)
			<-h.unlock // Promise 7: Do releases the lock only after this function has returned.
			stay(hold, h.set.minHold-time.Since(h.since))
			return nil
		}, h.set.opts...)
		h.free()
	}()
	select {
	case <-granted:
		return nil
	case <-h.over:
		return h.err
	}
}

// free lets the next caller in this process have the name.
func (h *Held) free() {
	h.set.mu.Lock()
	passed := h.passed
	h.set.mu.Unlock()
	if !passed {
		<-h.entry.taken
		h.set.leave(h.name, h.entry)
	}
}

// Retake makes one attempt to acquire the lock of this name again if it was lost. Nobody else in
// this process gets the name meanwhile. If the attempt fails, it stays with the hold that was lost,
// which Unlock ends. What Lock or TryLock returned is of no use after a success.
func (s *Set) Retake(ctx context.Context, n string) error {
	old := s.held(n)
	if old == nil {
		return NotLocked(n)
	}
	if lostErr(old.ctx) == nil {
		return nil
	}
	h := newHeld(s, n, old.entry)
	h.passed = true // until the old hold is replaced
	if err := h.acquire(ctx, s.client.TryDo); err != nil {
		return err
	}
	s.mu.Lock()
	mine := old.entry.held == old // otherwise it was unlocked meanwhile
	if mine {
		old.entry.held, old.passed, h.passed = h, true, false
	}
	s.mu.Unlock()
	if !mine {
		close(h.unlock)
		return NotLocked(n)
	}
	close(old.unlock)
	return nil
}

// stay waits for d, or until the hold ends: by a loss or the Client's Shutdown.
func stay(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Context returns the context of the hold of this name; false if it is not locked.
func (s *Set) Context(n string) (context.Context, bool) {
	if h := s.held(n); h != nil {
		return h.ctx, true
	}
	return nil, false
}

// Unlock is Held.Unlock of whatever hold has this name now. It is for libraries that keep nothing
// but the name.
func (s *Set) Unlock(ctx context.Context, n string) error {
	if h := s.held(n); h != nil {
		return h.Unlock(ctx)
	}
	return NotLocked(n)
}

// NotLocked is the error of an Unlock without a lock.
func NotLocked(n string) error {
	return driver.Invalid("Name", driver.Quote(n), "the name of a lock that is locked")
}

func (s *Set) held(n string) *Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	if entry := s.names[n]; entry != nil {
		return entry.held
	}
	return nil
}

// Context returns the context of the hold.
func (h *Held) Context() context.Context { return h.ctx }

// Unlock releases the lock, or begins the rest of its minimum hold, in which it does not wait.
// It waits for the release until ctx ends; the release goes on without it. The error matches
// holdfast.ErrLost if the lock was lost before Unlock was called, and is that of NotLocked if
// this hold was unlocked before. A failed release is reported to the Client's observers.
func (h *Held) Unlock(ctx context.Context) error {
	h.set.mu.Lock()
	mine := h.entry.held == h // otherwise it was unlocked, and the name may have the next hold
	if mine {
		h.entry.held = nil
	}
	h.set.mu.Unlock()
	if !mine {
		return NotLocked(h.name)
	}
	lost := lostErr(h.ctx)
	close(h.unlock)
	if lost == nil && h.ctx.Err() == nil && h.set.minHold > time.Since(h.since) {
		return nil
	}
	select {
	case <-h.over:
	case <-ctx.Done():
	}
	return lost
}

// lostErr returns the error of a hold that was lost.
func lostErr(ctx context.Context) error {
	hold, ok := holdfast.HoldFromContext(ctx)
	if !ok {
		return nil
	}
	if err := hold.Err(); errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return nil
}

func (s *Set) join(n string) *name {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.names[n]
	if entry == nil {
		entry = &name{taken: make(chan struct{}, 1)}
		s.names[n] = entry
	}
	entry.users++
	return entry
}

func (s *Set) leave(n string, entry *name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if entry.users--; entry.users == 0 {
		delete(s.names, n)
	}
}

// take waits until the caller has the name, or reports at once that another has it.
func (entry *name) take(ctx context.Context, n string, wait bool) error {
	select {
	case entry.taken <- struct{}{}:
		return nil
	default:
	}
	if !wait {
		return driver.Errorf("lock %q: this process has it: %w", n, holdfast.ErrHeld)
	}
	select {
	case entry.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return driver.Errorf("lock %q: waiting ended: %w; this process has it: %w", n, ctx.Err(), holdfast.ErrHeld)
	}
}

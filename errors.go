package holdfast

import (
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cause"
)

// Errors, for errors.Is. An argument that is not allowed is an *[InvalidError].
var (
	// ErrHeld: another holds the lock. errors.As gives a *[HeldError].
	ErrHeld = driver.ErrHeld
	// ErrLost: the lease ended before it was released, or no longer counts as held.
	ErrLost = driver.ErrLost
	// ErrClosed: the Locker was closed, or the Client was shut down.
	ErrClosed = driver.ErrClosed
	// ErrReleased is the cause of a hold's context after its release.
	ErrReleased = cause.ErrReleased
	// ErrSteppedDown is the cause of a task's context when leadership was given up: by
	// StepDown, after a failed health check, or because the task sent no heartbeat in time.
	ErrSteppedDown = cause.ErrSteppedDown
)

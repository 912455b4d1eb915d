// Package bridge lets the other packages of this module reach what the public types of package holdfast
// contain. The fields of those types are unexported, so that a program sees no internal type. Package holdfast
// sets the functions when the program starts.
package bridge

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/settings"
)

var (
	// Client returns what a *holdfast.Client contains, or nil for a nil one.
	Client func(client any) *engine.Client
	// Hold returns what a *holdfast.Hold contains, or nil for a nil one.
	Hold func(hold any) *engine.Hold
	// PublicHold returns the *holdfast.Hold of a hold.
	PublicHold func(h *engine.Hold) any
	// Apply applies an option to the settings of locks, and reports whether it is a holdfast.Option.
	Apply func(option any, to *settings.Config) bool
)

// ApplyOptions applies options of the package pkg, each of which is an O of its own or a holdfast.Option for its locks.
func ApplyOptions[O ~func(*S), S, Option any](opts []Option, to *S, locks *settings.Config, pkg string) error {
	for _, o := range opts {
		switch own, ok := any(o).(O); {
		case any(o) == nil:
			return driver.Invalid("option", "nil", "an Option")
		case ok && own != nil:
			own(to)
		case !Apply(o, locks):
			return driver.Invalid("option", fmt.Sprintf("%T", o), "one of package "+pkg+" or holdfast")
		}
	}
	return nil
}
